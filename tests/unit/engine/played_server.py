"""A server that a test plays, for one real host."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.parts import HostPart
from mdgan.errors import BadInput
from mdgan.gan.model_vector import ModelVector
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Received
from mdgan.transport.host_end import HostTransport
from mdgan.transport.memory import MemoryNetwork
from tests.toy_family import ASK, ToyHost
from tests.unit.engine.learners import Learner
from tests.unit.engine.played import LONG, hello, make_generator
from tests.unit.engine.stage import Actor, make_host

SENT = ModelVector(make_generator(5)).read()
NUM_STEPS = 2


class PlayedServer:
    """A server that the test plays, and one real host in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        limits = Timeouts(connect=LONG, patience=LONG, swap=10, link=5, farewell=0.1)
        self.network = MemoryNetwork(limits, self.admit)
        self.welcome: dict[str, Any] = {
            "generation": 1,
            "run": "run",
            "wants_states": False,
            "iteration": 0,
            "checkpoint": None,
        }
        self.hellos: list[Mapping[str, Any]] = []
        self.refuses = ""
        self.to_server = False
        self.before_connect: Callable[[], None] = lambda: None
        self.waited: list[float] = []

    def admit(self, hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        self.hellos.append(dict(hello))
        return self.refuses or self.welcome

    def connect(self, hello: Mapping[str, Any], seconds: float) -> HostTransport:
        self.waited.append(seconds)
        self.before_connect()
        return self.network.join(int(hello["host"]), hello)

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer, **how: Any) -> HostPart:
        """What the algorithm adds to the host."""
        return ToyHost(workers, NUM_STEPS, tracer, **how)

    def starts(self, workers: Mapping[int, Any], *, patience: float = LONG, **how: Any) -> None:
        """Starts a host; `how` is for the algorithm's part."""
        self.number, tracer = next(iter(workers)), Tracer()
        self.host = make_host(
            self.bring_host(workers, tracer, **how),
            hello(*workers),
            self.connect,
            Timeouts(connect=LONG, patience=patience, swap=10, link=5, farewell=0.1),
            self.folder,
            tracer,
            to_server=self.to_server,
        )
        self.actor = Actor(self.host.run)
        self.actor.start()

    def arrives(self, workers: Mapping[int, Any], *, patience: float = LONG) -> Message:
        """Starts a host, and returns what it says when it is ready."""
        self.starts(workers, patience=patience)
        return self.take(Kind.READY)

    def send(self, message: Message) -> None:
        self.network.server.send(self.number, message)

    def take(self, kind: str, *, besides: str = Kind.SPANS) -> Message:
        """The next message, which must be of a kind; some others are passed over."""
        deadline = time.monotonic() + LONG
        while (remaining := deadline - time.monotonic()) > 0:
            event = self.network.server.receive(remaining)
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


def question(iteration: int, *workers: int) -> Message:
    """What the host is asked."""
    return Message(ASK, iteration, {"workers": list(workers)}, {"generator": SENT})


def change_by(learner: Learner) -> Tensor:
    """What a worker must answer, computed here."""
    vector = ModelVector(learner.generator)
    vector.write(SENT)
    for _ in range(NUM_STEPS):
        learner.step()
    return vector.read() - SENT


def unreadable() -> None:
    """What a step finds that cannot read its samples."""
    raise BadInput("7.png: cannot be read")


def rows(answer: Message) -> list[Tensor]:
    """The answers of a host's workers."""
    return list(torch.unbind(answer.tensors["answers.values"]))
