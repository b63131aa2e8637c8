"""Counts what became of every worker's answers, for the run's records."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from mdgan.engine.server.membership import Membership
from mdgan.observe.run_observer import RunObserver

_WORTH_TELLING_SECONDS = 1.0


class Attendance:
    """Counts, for every worker, answers, late answers, refused answers and losses.

    Args:
        members: the hosts and workers that take part.
        observer: records what is out of the ordinary.
        counts_answers: whether it may be known how often each worker took part.
    """

    def __init__(
        self, members: Membership, observer: RunObserver, *, counts_answers: bool = True
    ) -> None:
        self._counts_answers = counts_answers
        self._members = members
        self._observer = observer
        self._counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._excused: Counter[int] = Counter()
        self._late_since: dict[int, tuple[int, float]] = {}
        self._told: set[int] = set()

    def answered(self, workers: Iterable[int]) -> None:
        """Workers answered in time."""
        if self._counts_answers:
            self._count("answered", workers)

    def late(self, iteration: int, workers: Iterable[int]) -> None:
        """The server goes on without the answers of some workers."""
        workers = list(workers)
        self._count("late", workers)
        self._late_since.update(dict.fromkeys(workers, (iteration, time.monotonic())))
        self._observer.event("late", iteration, workers=workers)

    def back(self, iteration: int, workers: Iterable[int]) -> None:
        """Workers that were late have answered after all; that answer is discarded."""
        for worker in workers:
            first, since = self._late_since.pop(worker, (iteration, time.monotonic()))
            away, missed = round(time.monotonic() - since, 3), iteration - first
            self._observer.event(
                "back", iteration, workers=[worker], missed=missed, late_seconds=away
            )
            if worker in self._told:
                self._told.discard(worker)
                self._observer.note(f"rank {worker} answers again; it missed {missed} iterations")

    def tell_of_absent(self) -> None:
        """Tells the user of workers that have not answered for over a second."""
        now = time.monotonic()
        for worker, (iteration, since) in self._late_since.items():
            if worker not in self._told and now - since >= _WORTH_TELLING_SECONDS:
                self._told.add(worker)
                self._observer.note(
                    f"rank {worker} has not answered since iteration {iteration}; training goes on "
                    "without it"
                )

    def refused(self, iteration: int, worker: int, reason: str, strikes: int) -> None:
        """A worker's answer could not be used.

        One that is no strike may be followed by any number of others: they are told less and less
        often, the 1st, 2nd, 4th, 8th, … of a worker.
        """
        self._count("refused", [worker])
        if not strikes:
            self._excused[worker] += 1
            if self._excused[worker].bit_count() > 1:
                return
        self._observer.event("refused", iteration, worker=worker, reason=reason, strikes=strikes)
        counted = f"strike {strikes}" if strikes else "no strike: it may be what it was given"
        self._observer.note(f"feedback of rank {worker} refused: {reason} ({counted})")

    def lost(self, workers: Iterable[int]) -> None:
        """The links to workers broke."""
        self._count("lost", workers)

    def settle(self) -> None:
        """Hosts are gone: the server does not expect their late answers any more."""
        here = set(self._members.workers())
        self._late_since = {n: late for n, late in self._late_since.items() if n in here}
        self._told &= here

    def tell(self, iteration: int) -> None:
        """Records all counts."""
        counts: dict[str, Any] = {
            str(worker): dict(counter) for worker, counter in sorted(self._counts.items())
        }
        self._observer.event("attendance", iteration, workers=counts)

    def _count(self, what: str, workers: Iterable[int]) -> None:
        for worker in workers:
            self._counts[worker][what] += 1
