"""A server that a test plays, for one real host."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan import messages
from mdgan.data.congestion import Range
from mdgan.data.fetching import Fetcher
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.loop import Host
from mdgan.engine.stages.contract import HostPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.host import MDGANHost
from mdgan.families.mdgan.worker import OneByOne, Worker, WorkerGroup
from mdgan.gan.labels import Samples
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Received
from mdgan.transport.host_end import HostTransport
from mdgan.transport.memory import MemoryNetwork
from tests.unit.engine.played import FORM, LONG, hello
from tests.unit.engine.stage import Actor, make_shard
from tests.unit.gan import small

FIRST, SECOND = small.images(1), small.images(2)


class PlayedServer:
    """A server that the test plays, and one real host in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.timeouts = Timeouts(connect=LONG, patience=LONG, swap=10, link=5, farewell=0.1)
        self.network = MemoryNetwork(self.timeouts, self.admit)
        self.welcome: dict[str, Any] = {
            "generation": 1,
            "run": "run",
            "wants_states": False,
            "iteration": 0,
            "checkpoint": None,
        }
        self.hellos: list[Mapping[str, Any]] = []
        self.refuses = ""
        self.before_connect: Callable[[], None] = lambda: None
        self.waited: list[float] = []

    def admit(self, said: Mapping[str, Any]) -> Mapping[str, Any] | str:
        self.hellos.append(dict(said))
        return self.refuses or self.welcome

    def connect(self, said: Mapping[str, Any], seconds: float) -> HostTransport:
        self.waited.append(seconds)
        self.before_connect()
        return self.network.join(int(said["host"]), said)

    def starts(
        self,
        workers: Mapping[int, Worker],
        *,
        patience: float = LONG,
        group: WorkerGroup | None = None,
        masks: HostMask | None = None,
    ) -> None:
        number = next(iter(workers))
        tracer = Tracer()
        self.host = Host(
            MDGANHost(
                workers,
                group or OneByOne(workers, tracer.of_worker),
                HostPath(FORM, [] if masks is None else [masks]),
                tracer,
            ),
            hello(*workers),
            self.connect,
            Timeouts(connect=LONG, patience=patience, swap=10, link=5, farewell=0.1),
            Describer({rank: make_shard(rank) for rank in workers}, None, small.CPU),
            HostCheckpoints(lambda _run: self.folder, tracer),
            tracer,
            Fetcher(Range(1, 1), Range(0, 0)),
        )
        self.number = number
        self.actor = Actor(self.host.run)
        self.actor.start()

    def send(self, message: Message) -> None:
        self.network.server.send(self.number, message)

    def take(self, kind: str, *, besides: str = Kind.SPANS) -> Message:
        """The next message, which must be of a kind; some others are passed over."""
        deadline = time.monotonic() + LONG
        while (left := deadline - time.monotonic()) > 0:
            event = self.network.server.receive(left)
            if isinstance(event, Received) and event.message.kind not in (Kind.SPANS, besides):
                assert event.message.kind == kind, event.message
                return event.message
        raise AssertionError(f"no {kind}")

    def cut(self) -> None:
        """Breaks the link, and both ends see it."""
        cut = self.network.hosts[self.number]
        cut.lose_server("the cable is cut")
        self.network.server.lose(cut.guest, "the cable is cut")

    def close(self) -> None:
        """Ends the host if it still runs."""
        if hasattr(self, "host"):
            self.host.interrupt()
            self.network.server.close()
            self.actor.join(2)

    def stop(self, reason: str = "", *, shut_out: bool = False) -> BaseException | None:
        self.send(messages.stop(9, reason, shut_out=shut_out))
        return self.actor.over()


def batches(iteration: int, workers: Mapping[int, Any], *, swap: bool = False) -> Message:
    assignment = dict.fromkeys(workers, (0, 1))
    generated = torch.stack([FIRST, SECOND]) / iteration
    return mdgan_messages.batches(
        iteration, Samples(generated), assignment, swap_follows=swap, last=False
    )


def answer(worker: Worker, iteration: int) -> Tensor:
    """What a worker must answer, computed here."""
    worker.learn(Samples(SECOND / iteration))
    return worker.feedback(Samples(FIRST / iteration))[0]
