"""The real server and real hosts in a short run on noise, in a folder that is thrown away.

Nothing of an algorithm is written a second time: what runs here is what `mdgan train` runs. What
it takes is read from the beginnings of its spans, what it sends from the traffic that it records.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.errors import Interrupted
from mdgan.launch.claim import claim
from mdgan.launch.faults import SERVER, Planned
from mdgan.launch.host_process import run_host
from mdgan.launch.one_process import run_everything
from mdgan.launch.prepare import Prepared
from mdgan.launch.ranks import LocalRanks
from mdgan.launch.server_process import run_server
from mdgan.launch.settings import LaunchSettings
from mdgan.observe.tracer import OnPhase
from mdgan.plan.forks import at_once
from mdgan.plan.layout import Layout
from mdgan.plan.noise import Noise
from mdgan.plan.phases import Charge, PhaseClock
from mdgan.records.recorded_run import RecordedRun
from mdgan.transport.rendezvous import listen

_ADDRESS = "127.0.0.1"
_ENDLESS = 10**9
_QUIET = {
    "participation": 1.0,
    "deadline": None,
    "eval_interval": 0,
    "sample_interval": 0,
    "checkpoint_interval": 0,
    "log_interval": _ENDLESS,
    "tensorboard": False,
}
"""Every worker takes part, and nothing is written that need not be."""


class Role(NamedTuple):
    """What a role of a short run has told.

    Attributes:
        charges: where its time went.
        sent: bytes by kind of message.
        received: likewise.
        own_bytes: memory of its process that is not shared with the one it was forked from.
    """

    charges: list[Charge]
    sent: Mapping[str, int]
    received: Mapping[str, int]
    own_bytes: int


@dataclass(frozen=True)
class _Watched(Planned):
    """Gives every role a clock, at the place where planned faults strike."""

    turn: threading.Semaphore | None = None
    busy_clock: Callable[[], float] = time.process_time
    stop_after: tuple[int, float] | None = None
    clocks: dict[str, PhaseClock] = field(default_factory=dict)

    def on_phase(self, role: str) -> OnPhase:
        """The clock of a role."""
        stop_after = self.stop_after if role == SERVER else None
        self.clocks[role] = PhaseClock(self.turn, self.busy_clock, stop_after)
        return self.clocks[role]


def play_here(
    dataset: DatasetFile, settings: RunSettings, layout: Layout, iterations: int, *, in_turns: bool
) -> list[Role]:
    """Plays with all roles in one process.

    Args:
        dataset: its models and shape; no data are read.
        settings: of the run.
        layout: the hosts, and how many threads the server has.
        iterations: I.
        in_turns: whether each role computes alone, on all cores.

    Returns:
        What the server has told, and then every host.

    Raises:
        ForkFailed: the process failed.
    """
    with _prepared(dataset, settings, layout, iterations) as prepared:
        turn = threading.Semaphore() if in_turns else None
        watched = _Watched(turn=turn, busy_clock=time.thread_time)
        play = partial(run_everything, claimed=claim(prepared))
        return _roles(prepared, at_once([partial(_tell, prepared, watched, play)]))


def play_together(
    dataset: DatasetFile, settings: RunSettings, layout: Layout, least: tuple[int, float]
) -> list[Role]:
    """Plays with a process for each host, all at the same time.

    Args:
        dataset: its models and shape; no data are read.
        settings: of the run.
        layout: the hosts, and how many threads processes have.
        least: steps and seconds for which it goes on.

    Returns:
        What the server has told, and then every host.

    Raises:
        ForkFailed: a process failed.
    """
    with (
        _prepared(dataset, settings, layout, _ENDLESS) as prepared,
        listen(_ADDRESS, 0) as listener,
    ):
        watched = _Watched(stop_after=least)
        serve = partial(run_server, claimed=claim(prepared), listener=listener)
        works = [partial(_tell, prepared, watched, serve)]
        launch = replace(prepared.launch, threads=layout.host_threads)
        own = replace(prepared, launch=launch)
        for carried in layout.hosts:
            port = listener.getsockname()[1]
            be_host = partial(run_host, workers=carried, port=port, process_here=0)
            works.append(partial(_tell, own, watched, be_host))
        return _roles(prepared, at_once(works))


@contextlib.contextmanager
def _prepared(
    dataset: DatasetFile, settings: RunSettings, layout: Layout, iterations: int
) -> Iterator[Prepared]:
    """A run like that of `launch.prepare`, with noise for data; its folder goes with the block."""
    ranks = LocalRanks(serves=True, hosts=layout.hosts, everyone=True)
    noise = Noise(dataset.shape, settings.batch_size)
    changes = {"world_size": 1 + layout.num_workers, "iterations": iterations, **_QUIET}
    with tempfile.TemporaryDirectory(prefix="mdgan-plan-") as folder:
        yield Prepared(
            replace(settings, **changes),  # type: ignore[arg-type] # by name
            LaunchSettings(out=folder, threads=layout.server_threads),
            dataset,
            ranks,
            dict.fromkeys(ranks.workers(), (noise, torch.arange(len(noise)))),
            torchrun=None,
            extractor="",
            warnings=(),
            launched=time.monotonic(),
        )


def _tell(
    prepared: Prepared, watched: _Watched, work: Callable[[Prepared], None]
) -> tuple[dict[str, list[Charge]], int]:
    """Plays some roles to their end; gives their charges and the memory of this process."""
    with contextlib.suppress(Interrupted):
        work(replace(prepared, faults=watched))
    charges = {role: clock.charges for role, clock in watched.clocks.items()}
    return charges, int(psutil.Process().memory_full_info().uss)


def _roles(prepared: Prepared, told: list[Any]) -> list[Role]:
    traces = RecordedRun.read(Path(str(prepared.launch.out))).traces
    found = {}
    for charges_by_role, own_bytes in told:
        for role, charges in charges_by_role.items():
            traffic = traces[role].traffic[-1]
            charged = [Charge(*charge) for charge in charges]
            found[role] = Role(charged, traffic.sent, traffic.received, own_bytes)
    return [found.pop(SERVER), *(found[f"host-{carried[0]}"] for carried in prepared.ranks.hosts)]
