"""How the workers of a host compute together: as the settings say, or as measured."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from mdgan.families.contract import HostNeeds
from mdgan.families.mdgan.discriminator_stack import CannotStack
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.stacked_workers import StackedWorkers
from mdgan.families.mdgan.tuning import Candidate, Tuning
from mdgan.families.mdgan.worker import Worker
from mdgan.families.mdgan.worker_group import OneByOne, WorkerGroup
from mdgan.settings.machine import num_cores

_log = logging.getLogger(__name__)


def make_group(workers: Mapping[int, Worker], needs: HostNeeds[MDGANSettings]) -> WorkerGroup:
    """The workers of one host as a group; with --tune it does not matter what --vectorize says.

    Args:
        workers: by rank.
        needs: what the host's part is built from.
    """
    settings, stage_of = needs.settings, needs.tracer.of_worker
    singly, together = OneByOne(workers, stage_of), None
    if (settings.vectorize or settings.tune) and len(workers) > 1:
        together = _stacked(workers, needs)
    if not settings.tune:
        return together or singly
    numbers = thread_numbers(needs)
    candidates = [_candidate("one by one", singly, number) for number in numbers]
    if together is not None:
        candidates.append(_candidate("all at once", together, numbers[0]))
    if len(candidates) == 1:
        return singly
    who = _named(list(workers))

    def tell(measured: str) -> None:
        _log.warning("%s computes %s", who, measured)

    set_threads = torch.set_num_threads if needs.own_process else _leave_threads
    return Tuning(candidates, set_threads, _clock_of(needs.device), tell)


def thread_numbers(needs: HostNeeds[MDGANSettings]) -> list[int]:
    """The numbers of compute threads worth a try, the present one first.

    Args:
        needs: what the host's part is built from. Only a CPU computes with these threads, and only
            in a process of its own may a host change how many there are.
    """
    present = torch.get_num_threads()
    if needs.fixed_threads or needs.device.type != "cpu" or not needs.own_process:
        return [present]
    return list(dict.fromkeys([present, 1, num_cores()]))


def _stacked(
    workers: Mapping[int, Worker], needs: HostNeeds[MDGANSettings]
) -> StackedWorkers | None:
    """The workers computed at once; None, and a warning, if that cannot be."""
    try:
        if needs.settings.compile:
            raise CannotStack("compiled models are called one by one")
        return StackedWorkers(workers, needs.dataset.shape, needs.tracer.of_worker)
    except CannotStack as reason:
        _log.warning("%s computes one by one: %s", _named(list(workers)), reason)
        return None


def _candidate(form: str, group: WorkerGroup, num_threads: int) -> Candidate:
    threads = "1 thread" if num_threads == 1 else f"{num_threads} threads"
    return Candidate(f"{form} with {threads}", group, num_threads)


def _leave_threads(_number: int) -> None:
    """Other hosts in this process use them too."""


def _clock_of(device: torch.device) -> Callable[[], float]:
    """A clock in seconds that first waits until the device has done its work."""
    if device.type != "cuda":
        return time.monotonic

    def after_all_work() -> float:
        torch.cuda.synchronize(device)
        return time.monotonic()

    return after_all_work


def _named(ranks: Sequence[int]) -> str:
    """`rank 3`, or the ranks as `--ranks` takes them."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"the process of ranks {ranks[0]}..{ranks[-1]}"
    return f"the process of ranks {','.join(map(str, ranks))}"
