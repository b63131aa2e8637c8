"""Counts how often each worker answered, was late, refused or lost; tells the user of trouble."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable

from mdgan.observe.run_observer import RunObserver
from mdgan.records.values import in_words
from mdgan.spelling import count

_WORTH_TELLING_SECONDS = 1.0
_OFTEN = 16  # the log tells of the 16th answer that was shortened, the 32nd, the 64th, …


class Attendance:
    """Records which workers' answers arrived, were late, refused, shortened or lost.

    Args:
        iteration: returns the iteration that the server works on.
        counts_answers: whether to record how often each worker answered in time.
    """

    def __init__(
        self, observer: RunObserver, iteration: Callable[[], int], *, counts_answers: bool
    ) -> None:
        self._observer = observer
        self._iteration = iteration
        self._counts_answers = counts_answers
        self._counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._num_excused: Counter[int] = Counter()
        self._late_since: dict[int, tuple[int, float]] = {}
        self._known_absent: set[int] = set()

    def answered(self, workers: Iterable[int]) -> None:
        """Counts workers that answered in time."""
        if self._counts_answers:
            self._count("answered", workers)

    def late(self, iteration: int, workers: Collection[int]) -> None:
        """Records workers without whose answers the server goes on."""
        self._count("late", workers)
        self._late_since.update(dict.fromkeys(workers, (iteration, time.monotonic())))
        self._observer.event("late", iteration, workers=list(workers))

    def back(self, workers: Iterable[int]) -> None:
        """Records late workers that have answered at last; the server discards that answer."""
        now, iteration = time.monotonic(), self._iteration()
        for worker in workers:
            first, since = self._late_since.pop(worker, (iteration, now))
            missed, seconds = iteration - first, round(now - since, 3)
            about = {"workers": [worker], "missed": missed, "late_seconds": seconds}
            self._observer.event("back", iteration, **about)
            if worker in self._known_absent:
                self._known_absent.discard(worker)
                line = f"rank {worker} answers again; it missed {count(missed, 'iteration')}"
                self._observer.note(line)

    def tell_of_absent(self) -> None:
        """Tells the user of workers that have not answered for over a second."""
        now = time.monotonic()
        for worker, (iteration, since) in self._late_since.items():
            if worker not in self._known_absent and now - since >= _WORTH_TELLING_SECONDS:
                self._known_absent.add(worker)
                self._observer.note(
                    f"rank {worker} has not answered since iteration {iteration}; training goes on "
                    "without it"
                )

    def refused(self, worker: int, reason: str, strikes: int) -> None:
        """Records a refused answer and the worker's strikes; logs excused ones (0) more rarely."""
        self._count("refused", [worker])
        self._num_excused[worker] += not strikes
        if strikes or self._num_excused[worker].bit_count() <= 1:
            about = {"worker": worker, "reason": reason, "strikes": strikes}
            self._observer.event("refused", self._iteration(), **about)
            verdict = f"strike {strikes}" if strikes else "no strike: others may have caused it"
            self._observer.note(f"feedback of rank {worker} refused: {reason} ({verdict})")

    def cut(self, workers: Iterable[int]) -> None:
        """Counts workers whose answers the server shortened, as they were far longer than usual."""
        for worker in workers:
            self._count("cut", [worker])
            if (times := self._counts[worker]["cut"]) >= _OFTEN and times.bit_count() == 1:
                self._observer.note(
                    f"feedback of rank {worker} was far longer than usual {times} times, and was "
                    "shortened"
                )

    def lost(self, workers: Collection[int], reason: str, num_left: int) -> None:
        """Records workers whose host's link has ended."""
        self._count("lost", workers)
        self._observer.note(f"lost rank(s) {in_words(workers)}: {reason}; {num_left} left")
        self._observer.event("lost", self._iteration(), workers=workers, reason=reason)

    def only(self, live: Collection[int]) -> None:
        """Forgets which workers were late, except those that are still live."""
        self._late_since = {n: late for n, late in self._late_since.items() if n in live}
        self._known_absent.intersection_update(live)

    def tell_counts(self, iteration: int) -> None:
        """Records how often each worker answered, was late, refused, cut and lost."""
        counts = {str(worker): dict(count) for worker, count in sorted(self._counts.items())}
        self._observer.event("attendance", iteration, workers=counts)

    def _count(self, what: str, workers: Iterable[int]) -> None:
        for worker in workers:
            self._counts[worker][what] += 1
