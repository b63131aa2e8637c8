"""How the workers of a host compute together: as the settings say, or as measured."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch

from mdgan.families.contract import HostNeeds
from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.stacked_workers import StackedWorkers
from mdgan.families.mdgan.worker import Answers, LearningLater, OneByOne, Worker, WorkerGroup
from mdgan.gan.labels import Samples
from mdgan.gan.model_stack import CannotStack
from mdgan.settings.machine import num_cores

_log = logging.getLogger(__name__)


TRIES = 5
"""Iterations that count for each candidate; one more before them does not."""


class Candidate(NamedTuple):
    """One way to compute.

    Attributes:
        words: what it is called.
        group: computes that way, for the same workers as the other candidates' groups.
        num_threads: compute threads.
    """

    words: str
    group: WorkerGroup
    num_threads: int


def make_group(workers: Mapping[int, Worker], needs: HostNeeds[MDGANSettings]) -> WorkerGroup:
    """The workers of one host as a group; with --tune it does not matter what --vectorize says.

    Args:
        workers: by rank.
        needs: what the host's part is built from.
    """
    settings, stage_of = needs.settings, needs.tracer.of_worker
    if settings.updates == "async":
        return LearningLater(workers, stage_of)
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
        if needs.settings.training.arithmetic.compile:
            raise CannotStack("compiled models are called one by one")
        return StackedWorkers(workers, needs.models.shape, needs.tracer.of_worker)
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


class Tuning:
    """Tries every candidate for a few iterations in turn, then stays with the fastest.

    What counts is the median time of an answer and of the real halves before it, divided by the
    number of workers that were asked.

    Args:
        candidates: at least one; the first wins a tie.
        set_threads: sets the number of compute threads.
        clock: seconds, after waiting until everything that was asked for is computed.
        tell: called with the result in words.
        tries: iterations that count for each candidate.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        set_threads: Callable[[int], None],
        clock: Callable[[], float],
        tell: Callable[[str], None],
        tries: int = TRIES,
    ) -> None:
        self._left = deque(candidates)
        self._set_threads = set_threads
        self._clock = clock
        self._tell = tell
        self._tries = tries
        self._medians: list[tuple[float, Candidate]] = []
        self._seconds: list[float] = []
        self._real_seconds = 0.0
        self._use(candidates[0])

    def learn_real_halves(self) -> None:
        """See `WorkerGroup`."""
        if not self._left:
            self._group.learn_real_halves()
            return
        begin = self._clock()
        self._group.learn_real_halves()
        self._real_seconds += self._clock() - begin

    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> Answers:
        """See `WorkerGroup`."""
        if not self._left:
            return self._group.answer(generated, assignment)
        begin = self._clock()
        answers = self._group.answer(generated, assignment)
        seconds = self._real_seconds + self._clock() - begin
        self._real_seconds = 0.0
        if assignment:
            self._note(seconds / len(assignment))
        return answers

    def catch_up(self) -> None:
        """See `WorkerGroup`; nothing was put off."""

    def _note(self, seconds: float) -> None:
        """Counts one iteration, and goes on to the next candidate when there were enough."""
        self._seconds.append(seconds)
        if len(self._seconds) <= self._tries:
            return
        # The first iteration warms caches up, and half of it may be the candidate's before.
        self._medians.append((median(self._seconds[1:]), self._left.popleft()))
        self._seconds = []
        if self._left:
            self._use(self._left[0])
            return
        ranking = sorted(self._medians, key=lambda entry: entry[0])
        self._use(ranking[0][1])
        self._tell(_in_words(ranking))

    def _use(self, candidate: Candidate) -> None:
        self._group = candidate.group
        self._set_threads(candidate.num_threads)


def _in_words(ranking: Sequence[tuple[float, Candidate]]) -> str:
    words = [f"{candidate.words}: {1e3 * seconds:.3g} ms" for seconds, candidate in ranking]
    return f"{words[0]} a worker" + (f" ({', '.join(words[1:])})" if words[1:] else "")
