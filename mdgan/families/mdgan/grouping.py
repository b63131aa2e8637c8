"""How the workers of a host compute together: as the settings say, or as measured."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from mdgan.families.mdgan.discriminator_stack import CannotStack
from mdgan.families.mdgan.stacked_workers import StackedWorkers
from mdgan.families.mdgan.tuning import Candidate, Tuning
from mdgan.families.mdgan.worker_group import OneByOne, WorkerGroup
from mdgan.gan.discriminator_learner import Worker
from mdgan.launch import machine
from mdgan.launch.prepare import Plan
from mdgan.observe.tracer import Tracer
from mdgan.settings.deployment import Deployment

_log = logging.getLogger(__name__)


def make_group(
    workers: Mapping[int, Worker],
    plan: Plan,
    tracer: Tracer,
    device: torch.device,
    *,
    own_process: bool,
) -> WorkerGroup:
    """The workers of one host as a group; --tune does not care for --vectorize.

    Args:
        workers: by rank.
        plan: the checked run.
        tracer: records what they do when.
        device: where their models live.
        own_process: whether nobody else computes in this process, so that its compute threads may
            be changed.
    """
    singly, deployment = OneByOne(workers, tracer.of_worker), plan.deployment
    together: StackedWorkers | None = None
    if (deployment.vectorize or deployment.tune) and len(workers) > 1:
        together = _stacked(workers, plan, tracer)
    if not deployment.tune:
        return together or singly
    numbers = thread_numbers(deployment, device, own_process=own_process)
    candidates = [_candidate("one by one", singly, number) for number in numbers]
    if together is not None:
        candidates.append(_candidate("all at once", together, numbers[0]))
    if len(candidates) == 1:
        return singly
    who = _named(list(workers))

    def tell(measured: str) -> None:
        _log.warning("%s computes %s", who, measured)

    set_threads = torch.set_num_threads if own_process else _leave_threads
    return Tuning(candidates, set_threads, _clock_of(device), tell)


def thread_numbers(deployment: Deployment, device: torch.device, *, own_process: bool) -> list[int]:
    """The numbers of compute threads worth a try, the present one first.

    Args:
        deployment: whose `--threads` nobody overrules.
        device: where models live; only CPUs compute with these threads.
        own_process: whether nobody else computes in this process.
    """
    present = torch.get_num_threads()
    if deployment.threads != "auto" or device.type != "cpu" or not own_process:
        return [present]
    return list(dict.fromkeys([present, 1, machine.num_cores()]))


def _stacked(workers: Mapping[int, Worker], plan: Plan, tracer: Tracer) -> StackedWorkers | None:
    """All at once, or None if that cannot be, which is said."""
    try:
        if plan.experiment.compile:
            raise CannotStack("compiled models are called one by one")
        return StackedWorkers(workers, plan.dataset.shape, tracer.of_worker)
    except CannotStack as reason:
        _log.warning("%s computes one by one: %s", _named(list(workers)), reason)
        return None


def _candidate(form: str, group: WorkerGroup, num_threads: int) -> Candidate:
    threads = "1 thread" if num_threads == 1 else f"{num_threads} threads"
    return Candidate(f"{form} with {threads}", group, num_threads)


def _leave_threads(_number: int) -> None:
    """They belong to everybody in this process."""


def _clock_of(device: torch.device) -> Callable[[], float]:
    """Seconds, once the device has done what it was asked to."""
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
