"""Plays a short run on noise with the real server and hosts, in a folder deleted afterwards."""

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partitioner import InMemoryPartitioner
from mdgan.data.shard import ClientShards
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, Interrupted
from mdgan.families import registry
from mdgan.launch.addresses import Sockets
from mdgan.launch.checked import Checked
from mdgan.launch.claim import claim
from mdgan.launch.faults import SERVER, Planned
from mdgan.launch.forks import ForkParent, in_forks
from mdgan.launch.processes import run_host, run_server
from mdgan.launch.ranks import LocalRanks
from mdgan.launch.settings import LaunchSettings
from mdgan.observe.tracer import OnPhase
from mdgan.plan.layout import Layout
from mdgan.plan.phases import PhaseCharge, PhaseClock
from mdgan.privacy.contents import Contents
from mdgan.records.recorded_run import RecordedRun, RecordedSpan
from mdgan.records.rows import Placed
from mdgan.samples.contract import Shape
from mdgan.system import may_fork

_ENDLESS = 10**9
_LEAST_SAMPLES = 64
_NUM_CLASSES = 10
_QUIET = {
    **{"iterations": _ENDLESS, "log_interval": _ENDLESS, "participation": 1.0, "deadline": None},
    **dict.fromkeys(("eval_interval", "sample_interval", "checkpoint_interval"), 0),
    "tracker": None,
}
"""Settings of the short run: every worker takes part, and it writes as little as possible."""


class _Noise(InMemoryPartitioner):
    """A few batches of noise with labels, made in memory."""

    def __init__(self, shape: Shape, batch_size: int, num_classes: int) -> None:
        self._num_classes = num_classes
        self._shape = (max(_LEAST_SAMPLES, 4 * batch_size), *shape)
        super().__init__(Path())

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        """Draws pixels, uint8 [n, C, H, W], and labels, int64 [n], of all classes."""
        random = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, self._shape, generator=random, dtype=torch.uint8)
        return pixels, torch.randperm(len(pixels), generator=random) % self._num_classes


class PlayedRole(NamedTuple):
    """What the server or a host did in a short run."""

    charges: list[PhaseCharge]
    own_bytes: int  # memory that the role's process shares with no other process
    forked_bytes: int  # see `PhaseClock`
    spans: Mapping[int, Sequence[RecordedSpan]]
    placed: Sequence[Placed] = ()  # where placed clients were trained; only of the server

    def moved_bytes(self, phase: str) -> float:
        """Bytes that the role moves in a phase: the median over steps in which it moves some."""
        sums = (
            sum(span.num_bytes for span in spans if span.name == phase)
            for spans in self.spans.values()
        )
        moved = [num_bytes for num_bytes in sums if num_bytes]
        return median(moved) if moved else 0.0


@dataclass(frozen=True)
class _Clocked(Planned):
    """Gives a process a clock through the hook by which planned faults strike."""

    clock: PhaseClock | None = None

    def on_phase(self, _role: str) -> OnPhase | None:
        return self.clock


def play(
    dataset: DatasetFile,
    settings: RunSettings,
    layout: Layout,
    least: tuple[int, float],
    *,
    in_turns: bool = False,
) -> list[PlayedRole]:
    """Runs the server and each host in its own process; returns what each did, the server first.

    The run stops after the `least` steps and seconds. In turns, only one process computes at once.
    """
    if not may_fork():
        raise BadInput("a short run", "plays in forks, which are not safe here", "use Linux or WSL")
    turn = multiprocessing.get_context("fork").Semaphore() if in_turns else None
    with _prepared(dataset, settings, layout) as prepared:
        run = Path(str(prepared.launch.out))
        sockets = Sockets(run.parent, alone=True)
        serve = partial(run_server, claimed=claim(prepared), places=[sockets.server])
        clock = PhaseClock(turn, least)
        works = [partial(_carry_out, prepared=prepared, clock=clock, play_role=serve)]
        host = replace(prepared, launch=prepared.launch.but(threads=layout.host_threads))
        for carried in layout.hosts:
            be_host = partial(run_host, workers=carried, sockets=sockets, process_here=0)
            clock = PhaseClock(turn, None)
            works.append(partial(_carry_out, prepared=host, clock=clock, play_role=be_host))
        results: dict[int, Any] = {}
        in_forks(works, results.__setitem__)
        recorded = RecordedRun.read(run)
    names = [SERVER, *(f"host-{carried[0]}" for carried in layout.hosts)]
    roles = []
    for number, name in enumerate(names):
        charges, own, forked = results[number]
        spans = recorded.traces[name].spans
        roles.append(PlayedRole([PhaseCharge(*each) for each in charges], own, forked, spans=spans))
    return [roles[0]._replace(placed=recorded.of(Placed)), *roles[1:]]


@contextlib.contextmanager
def _prepared(dataset: DatasetFile, settings: RunSettings, layout: Layout) -> Iterator[Checked]:
    """A run as `launch.checked` makes it, with noise as data; deletes its folder afterwards."""
    ranks = LocalRanks(serves=True, hosts=layout.hosts, complete=True)
    noise = _Noise(dataset.shape, settings.training.batch_size, dataset.num_classes or _NUM_CLASSES)
    changes: dict[str, Any] = {"world_size": 1 + layout.num_workers, **_QUIET}
    # Some clients hold more samples than others, which shows what more samples cost.
    parts = [
        torch.arange(len(noise) // 4 * (1, 2, 4)[n % 3]) for n in range(settings.num_placed or 0)
    ]
    with tempfile.TemporaryDirectory(prefix="mdgan-plan-") as folder:
        if settings.privacy.has_dp:  # noise needs no privacy, so the user's ledger stays untouched
            changes |= {"dp_ledger": str(Path(folder) / "ledger"), "audit_canaries": 0}
        yield Checked(
            launch=LaunchSettings(out=str(Path(folder) / "run"), threads=layout.server_threads),
            algorithm=registry.algorithm(settings.algorithm),
            draft=settings,
            dataset=dataset,
            settings=settings.but(**changes),
            ranks=ranks,
            holdings=dict.fromkeys(ranks.workers(), (noise, torch.arange(len(noise)))),
            clients=ClientShards(noise, parts, settings.training.seed) if parts else None,
            # A ledger refuses two workers with the same samples; here all hold the same noise.
            contents={n: Contents.of_name(f"noise of {n}") for n in ranks.workers()},
            is_rehearsed=True,
        )


def _carry_out(
    parent: ForkParent, prepared: Checked, clock: PhaseClock, play_role: Callable[[Checked], None]
) -> None:
    """Plays a role until the run stops; sends the parent its charges and its memory."""
    with Path(os.devnull).open("w") as nowhere:  # the user need not see the output of a short run
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    with contextlib.suppress(Interrupted):
        play_role(replace(prepared, faults=_Clocked(clock=clock)))
    own_bytes = int(psutil.Process().memory_full_info().uss)
    parent.tell([clock.charges, own_bytes, clock.forked_bytes])
