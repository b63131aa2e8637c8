"""The real server and real hosts in a short run on noise, in a folder that is thrown away.

Nothing of an algorithm is written a second time: what runs here is what `mdgan train` runs. What
it takes and sends is read from its spans.
"""

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import torch
from torch import Tensor

from mdgan.data.client_shards import ClientShards
from mdgan.data.dataset_file import DatasetFile
from mdgan.data.images import Shape
from mdgan.data.partitioner import InMemoryPartitioner
from mdgan.engine.settings import RunSettings
from mdgan.errors import Interrupted
from mdgan.launch.claim import claim
from mdgan.launch.faults import SERVER, Planned
from mdgan.launch.prepare import Prepared
from mdgan.launch.privacy import rehearsed
from mdgan.launch.processes import run_host, run_server
from mdgan.launch.ranks import LocalRanks
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.sockets import Sockets
from mdgan.observe.tracer import OnPhase
from mdgan.plan.forks import at_once
from mdgan.plan.layout import Layout
from mdgan.plan.phases import Charge, PhaseClock
from mdgan.records.placements import Placed
from mdgan.records.recorded_run import RecordedRun, RecordedSpan

_ENDLESS = 10**9
_IDLE = ("wait", "receive", "checkpoint")
_LEAST_SAMPLES = 64
_NUM_CLASSES = 10
_QUIET = {
    "iterations": _ENDLESS,
    "participation": 1.0,
    "deadline": None,
    "eval_interval": 0,
    "sample_interval": 0,
    "checkpoint_interval": 0,
    "log_interval": _ENDLESS,
    "tensorboard": False,
    "tracker": None,
}
"""Every worker takes part, and nothing is written that need not be."""


class _Noise(InMemoryPartitioner):
    """A few batches of noise with labels, which are not read from a disk."""

    def __init__(self, shape: Shape, batch_size: int, num_classes: int) -> None:
        self._num_classes = num_classes
        self._shape = (max(_LEAST_SAMPLES, 4 * batch_size), *shape)
        super().__init__(Path())

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        """Draws pixels, uint8 [n, C, H, W], and labels, int64 [n]; all classes are there."""
        random = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, self._shape, generator=random, dtype=torch.uint8)
        return pixels, torch.randperm(len(pixels), generator=random) % self._num_classes


class Role(NamedTuple):
    """What a role of a short run has told.

    Attributes:
        charges: where its time went.
        own_bytes: memory of its process that is not shared with the one it was forked from.
        forked_bytes: the most that one of the processes has of its own which this one has forked.
        spans: by iteration; of its first ones at least.
        placed: where clients without a home were trained; the server knows.
    """

    charges: list[Charge]
    own_bytes: int
    forked_bytes: int
    spans: Mapping[int, Sequence[RecordedSpan]]
    placed: Sequence[Placed] = ()

    def moved_bytes(self, phases: Collection[str]) -> float:
        """What it sends or receives in some phases, in a usual step in which it does."""
        sums = (
            sum(span.num_bytes for span in spans if span.name in phases)
            for spans in self.spans.values()
        )
        found = [num_bytes for num_bytes in sums if num_bytes]
        return median(found) if found else 0.0


@dataclass(frozen=True)
class _Watched(Planned):
    """Gives a process a clock, at the place where planned faults strike."""

    clock: PhaseClock | None = None

    def on_phase(self, role: str) -> OnPhase | None:
        """The clock; there is one role in a process."""
        del role
        return self.clock


def play(
    dataset: DatasetFile,
    settings: RunSettings,
    layout: Layout,
    least: tuple[int, float],
    *,
    special: Collection[str] = (),
    in_turns: bool = False,
) -> list[Role]:
    """Plays with a process for the server and for each host.

    Args:
        dataset: its models and shape; no data are read.
        settings: of the run.
        layout: the hosts, and how many threads processes have.
        least: steps and seconds for which it goes on.
        special: the phases that not every step has.
        in_turns: whether each process computes alone, so that it has all cores.

    Returns:
        What the server has told, and then every host.

    Raises:
        ForkFailed: a process failed.
    """
    turn = multiprocessing.get_context("fork").Semaphore() if in_turns else None
    idle = {*_IDLE, *special}
    with _prepared(dataset, settings, layout) as prepared:
        sockets = Sockets(Path(str(prepared.launch.out)).parent, alone=True)
        serve = partial(run_server, claimed=claim(prepared), places=[sockets.server])
        works = [partial(_tell, prepared, PhaseClock(turn, idle, least), serve)]
        own = replace(prepared, launch=prepared.launch.but(threads=layout.host_threads))
        for carried in layout.hosts:
            be_host = partial(run_host, workers=carried, sockets=sockets, process_here=0)
            works.append(partial(_tell, own, PhaseClock(turn, idle, None), be_host))
        told = at_once(works)
        recorded = RecordedRun.read(Path(str(prepared.launch.out)))
    names = [SERVER, *(f"host-{carried[0]}" for carried in layout.hosts)]
    server, *hosts = (
        Role([Charge(*charge) for charge in charges], own, forked, recorded.traces[name].spans)
        for name, (charges, own, forked) in zip(names, told, strict=True)
    )
    return [server._replace(placed=recorded.of(Placed)), *hosts]


@contextlib.contextmanager
def _prepared(dataset: DatasetFile, settings: RunSettings, layout: Layout) -> Iterator[Prepared]:
    """A run like that of `launch.prepare`, with noise for data; its folder goes with the block."""
    ranks = LocalRanks(serves=True, hosts=layout.hosts, complete=True)
    noise = _Noise(dataset.shape, settings.training.batch_size, dataset.num_classes or _NUM_CLASSES)
    changes = {"world_size": 1 + layout.num_workers, **_QUIET}
    # Some clients hold more than others, so that what more samples cost can be seen.
    parts = [
        torch.arange(len(noise) // 4 * (1, 2, 4)[n % 3]) for n in range(settings.num_roaming or 0)
    ]
    with tempfile.TemporaryDirectory(prefix="mdgan-plan-") as folder:
        yield Prepared(
            rehearsed(settings.but(**changes)),
            LaunchSettings(out=str(Path(folder) / "run"), threads=layout.server_threads),
            dataset,
            ranks,
            dict.fromkeys(ranks.workers(), (noise, torch.arange(len(noise)))),
            task=None,
            extractor="",
            warnings=(),
            launched=time.monotonic(),
            clients=ClientShards(noise, parts, settings.training.seed) if parts else None,
        )


def _tell(
    prepared: Prepared, clock: PhaseClock, play_role: Callable[[Prepared], None]
) -> tuple[list[Charge], int, int]:
    """Plays a role until the run is stopped; gives its charges and the memory of its processes."""
    with contextlib.suppress(Interrupted):
        play_role(replace(prepared, faults=_Watched(clock=clock)))
    return clock.charges, int(psutil.Process().memory_full_info().uss), clock.forked_bytes
