"""Measures in the first iterations how a host's workers compute fastest, and keeps to that."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from torch import Tensor

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.worker_group import Answers, WorkerGroup

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

    def answer(self, generated: Tensor, assignment: Mapping[int, Assignment]) -> Answers:
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
