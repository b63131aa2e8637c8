"""When each worker took part, and what it missed."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mdgan.records.happenings import (
    BACK,
    BEGAN,
    JOINED,
    LATE,
    LEFT,
    LOST,
    REFUSED,
    RESUMED,
    SHUT_OUT,
    Happening,
)
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Attended, Round
from mdgan.records.values import count

COUNTED = ("answered", LATE, REFUSED, LOST)
_COMING, _GOING = (BEGAN, RESUMED, JOINED), (LEFT, LOST, SHUT_OUT)
_MOST_TOLD = 6
_LONG_SHARE = 0.02
_DIGITS = 9  # the rest of a share is noise

FloatArray: TypeAlias = npt.NDArray[np.float64]

Stretch = tuple[int, int]
"""(begin, end): the iterations after `begin`, up to and including `end`."""


class Mark(NamedTuple):
    """The moment when a worker came or went.

    Attributes:
        kind: joined, left, lost or shut out.
        iteration: in which it did.
        reason: why, if that is known.
    """

    kind: str
    iteration: int
    reason: str


class Share(NamedTuple):
    """How much a worker missed of some iterations in a row.

    Attributes:
        begin: the iteration before the first of them.
        end: the last of them.
        late: the share of them in which the server went on without the worker's answer.
        refused: the share of them in which the server could not use the answer.
    """

    begin: float
    end: float
    late: float
    refused: float


@dataclass
class Attendance:
    """When one worker took part.

    Attributes:
        worker: its number.
        stays: when it took part in the run, in order.
        missed: the iterations in which the server went on without its answer, in order.
        refused: the iterations in which the server could not use its answer, in order.
        marks: how it came and went, in order.
        counts: how often it answered, was late, was refused and was lost.
    """

    worker: int
    stays: list[Stretch] = field(default_factory=list)
    missed: list[Stretch] = field(default_factory=list)
    refused: list[Stretch] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def eventful(self) -> bool:
        """Whether anything out of the ordinary happened."""
        return bool(self.marks or self.missed or self.refused)

    def shares(self, last: int, most: int) -> list[Share]:
        """What it missed, in stretches of equal length; a stretch without a miss is left out.

        Args:
            last: the last iteration of the run.
            most: the greatest number of stretches.
        """
        edges = np.linspace(0, last, min(most, last) + 1)
        late, refused = (
            np.round(np.diff(_covered(part, edges)) / edges[1], _DIGITS)
            for part in (self.missed, self.refused)
        )
        bins = zip(edges, edges[1:], late, refused, strict=False)
        return [Share(*map(float, one)) for one in bins if max(one[2:]) > 0]


def attendance(run: RecordedRun, done: int) -> list[Attendance]:
    """When each worker of a run was there, and what it missed, by its number.

    A worker that is not asked in a round misses nothing.

    Args:
        run: what it recorded.
        done: the last iteration that is known to be done.
    """
    book = _Book(run.of(Round))
    for row in run.rows:
        if isinstance(row, Attended):
            book.told(row.workers)
        elif isinstance(row, Happening):
            book.take(row)
    return book.closed(done)


def resumptions(run: RecordedRun) -> list[int]:
    """The iterations from which a run went on after it had stopped."""
    return [found.iteration for found in run.of(Happening) if found.kind == RESUMED]


def eventful(run: RecordedRun, workers: Iterable[Attendance]) -> bool:
    """Whether anything out of the ordinary happened to the run or to a worker."""
    return bool(resumptions(run)) or any(worker.eventful for worker in workers)


def holdings(run: RecordedRun) -> dict[int, list[int]]:
    """Worker → how many samples of each class it holds, as recorded last."""
    classes = (told.classes.items() for told in run.of(Happening))
    return dict(sorted(dict(chain.from_iterable(classes)).items()))


def said_story(worker: Attendance, last: int) -> str:
    """What happened to a worker, in words."""
    told = [(mark.iteration, _said_mark(mark)) for mark in worker.marks]
    for begin, end in worker.missed:
        if end - begin > max(1.0, _LONG_SHARE * last):
            told.append((begin + 1, f"no answer from {begin + 1:,} to {end:,}"))
    words = [text for _, text in sorted(told, key=lambda item: item[0])]
    more = f"; {len(words) - _MOST_TOLD} more" if len(words) > _MOST_TOLD else ""
    return "; ".join(words[:_MOST_TOLD]) + more


def said_in_all(run: RecordedRun, workers: Sequence[Attendance]) -> str:
    """What happened in a run, in one clause; empty if nothing did."""
    marks = Counter(mark.kind for worker in workers for mark in worker.marks)
    late, refused = (sum(worker.counts[what] for worker in workers) for what in (LATE, REFUSED))
    resumed = len(resumptions(run))
    said = (
        (marks[LOST], count(marks[LOST], "loss", "losses")),
        *((marks[kind], f"{marks[kind]:,} {kind}") for kind in (SHUT_OUT, LEFT, JOINED)),
        (late, count(late, "late answer")),
        (refused, count(refused, "refused answer")),
        (resumed, f"resumed {'once' if resumed == 1 else f'{resumed:,} times'}"),
    )
    return ", ".join(text for times, text in said if times)


def thinned(marks: Sequence[Mark], last: int, most: int) -> list[Mark]:
    """Marks that a reader can tell apart: at most one of a kind in each of `most` stretches."""
    size = max(1.0, last / most)
    return list({(mark.kind, int(mark.iteration / size)): mark for mark in marks}.values())


def most_eventful(workers: Sequence[Attendance], most: int) -> list[Attendance]:
    """At most `most` workers, by number: those to which most happened, and some others."""
    first = sorted(workers, key=lambda w: (not w.eventful, -len(w.marks), -w.counts[LATE]))
    return sorted(first[:most], key=lambda worker: worker.worker)


def _said_mark(mark: Mark) -> str:
    reason = f" ({mark.reason})" if mark.reason else ""
    return f"{mark.kind} in {mark.iteration:,}{reason}"


def _covered(stretches: Sequence[Stretch], until: FloatArray) -> FloatArray:
    """How many iterations up to each of some are covered by `stretches`, which are in order."""
    iterations, covered = [0], [0]
    for begin, end in stretches:
        iterations += [begin, end]
        covered += [covered[-1], covered[-1] + end - begin]
    return np.interp(until, iterations, covered)


class _Book:
    """Follows the workers of a run from happening to happening.

    Args:
        rounds: all rounds; none where every iteration asks for an answer.
    """

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._ends = sorted({one.iteration for one in rounds})
        self._took_part = Counter(rank for one in rounds for rank in one.took_part)
        self._workers: dict[int, Attendance] = {}
        self._here: dict[int, int] = {}  # worker → when it came, of those that take part now
        self._late: dict[int, int] = {}  # worker → the first iteration that it missed
        self._told: Mapping[int, Mapping[str, int]] = {}
        self._resumed = False
        self._last = 0

    def take(self, found: Happening) -> None:
        """Takes in one happening."""
        kind, i = found.kind, found.iteration
        self._last = max(self._last, i)
        self._told = {}
        if kind in (BEGAN, RESUMED):
            self._begin(found)
        for rank in found.workers:
            if rank not in self._workers and kind not in _COMING:
                self._here[rank] = 0  # when it came was not recorded
            worker = self._workers.setdefault(rank, Attendance(rank))
            if kind in _COMING:
                self._here.setdefault(rank, i)
            elif kind in _GOING:
                self._go(rank, i)
            elif kind == LATE and rank in self._here:
                self._late.setdefault(rank, i)
            elif kind == BACK:
                self._back(rank, i)
            elif kind == REFUSED:
                worker.refused.append((self._before(i), i))
            if kind in (JOINED, *_GOING):
                worker.marks.append(Mark(kind, i, found.reason))
            if kind in COUNTED:
                worker.counts[kind] += 1

    def told(self, counts: Mapping[int, Mapping[str, int]]) -> None:
        """Takes in the server's own counts, which a resumed run has of its last part only."""
        if not self._resumed:
            self._told = counts

    def closed(self, done: int) -> list[Attendance]:
        """All workers, at the end of the run."""
        for rank in list(self._here):
            self._go(rank, max(done, self._last))
        for rank, worker in self._workers.items():
            there = sum(end - begin for begin, end in worker.stays)
            absent = sum(end - begin for begin, end in (*worker.missed, *worker.refused))
            answered = self._took_part[rank] if self._ends else there - absent
            worker.counts["answered"] = max(0, answered)
            told = self._told.get(rank, {})
            dict.update(worker.counts, {name: told[name] for name in COUNTED if name in told})
        return [worker for _, worker in sorted(self._workers.items())]

    def _begin(self, found: Happening) -> None:
        """A server begins with the workers that are there, and asks all of them."""
        self._resumed |= found.kind == RESUMED
        for rank in list(self._late):
            self._back(rank, found.iteration)
        for rank in self._here.keys() - set(found.workers):
            self._go(rank, found.iteration)

    def _go(self, rank: int, iteration: int) -> None:
        self._back(rank, iteration)
        begin = self._here.pop(rank, iteration)
        if iteration > begin:
            self._workers[rank].stays.append((begin, iteration))

    def _back(self, rank: int, iteration: int) -> None:
        first = self._late.pop(rank, None)
        if first is not None and iteration >= first:
            self._workers[rank].missed.append((self._before(first), iteration))

    def _before(self, iteration: int) -> int:
        """The iteration before another one, or the end of the round before the one that it ends."""
        if not self._ends:
            return max(0, iteration - 1)
        place = bisect_left(self._ends, iteration)
        return self._ends[place - 1] if place else 0
