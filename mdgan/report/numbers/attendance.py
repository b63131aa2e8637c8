"""When each worker took part, what it missed, and the samples that the server saw through it.

Samples are counted as by Guerraoui et al. (2020, figures 10 and 14): in every round that it takes
part in, a worker shows the server all samples that it holds.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT, Happening
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import RoundRow
from mdgan.records.run_state import COUNTED, Mark, Stretch, WorkerState
from mdgan.spelling import count

_MOST_TOLD = 6
_LONG_SHARE = 0.02
_DIGITS = 9  # the rest of a share is noise

FloatArray: TypeAlias = npt.NDArray[np.float64]


class MissedShare(NamedTuple):
    """The shares of some iterations in which a worker's answer was late, or could not be used."""

    begin: float
    end: float
    late: float
    refused: float


@dataclass(frozen=True)
class Presence:
    """When one worker took part, was late or refused, in iterations after each beginning."""

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

    def shares(self, last: int, most: int) -> list[MissedShare]:
        """Shares of answers that the worker missed, in stretches of equal length that have some."""
        edges = np.linspace(0, last, min(most, last) + 1)
        late, refused = (
            np.round(np.diff(_covered(part, edges)) / edges[1], _DIGITS)
            for part in (self.missed, self.refused)
        )
        bins = zip(edges, edges[1:], late, refused, strict=False)
        return [MissedShare(*map(float, one)) for one in bins if max(one[2:]) > 0]


def presences(run: RecordedRun, done: int) -> list[Presence]:
    """When each worker took part, and what it missed; in rounds, only if it was asked."""
    rounds = run.of(RoundRow)
    ends = sorted({one.iteration for one in rounds})
    took_part = Counter(number for one in rounds for number in one.took_part)
    end = max(done, run.state.happened_until)
    workers = []
    for number, worker in sorted(run.state.workers.items()):
        if worker.here_since is not None or worker.stays or worker.marks:
            one = _presence(number, worker, ends, end=end)
            present, missed = _length(one.stays), _length([*one.missed, *one.refused])
            answered = took_part[number] if ends else present - missed
            one.counts.update({**worker.counts, "answered": max(0, answered)})
            server = run.state.counted(number)
            dict.update(one.counts, {name: server[name] for name in COUNTED if name in server})
            workers.append(one)
    return workers


def _presence(number: int, worker: WorkerState, ends: Sequence[int], end: int) -> Presence:
    def before(iteration: int) -> int:
        """The iteration before, or for the end of a round, the end of the round before."""
        if not ends:
            return max(0, iteration - 1)
        place = bisect_left(ends, iteration)
        return ends[place - 1] if place else 0

    stays, missed, since, late = worker.stays, worker.missed, worker.here_since, worker.late_since
    if since is not None and end > since:
        stays = [*stays, (since, end)]
    if late is not None and end >= late[0]:
        missed = [*missed, (late[0], end)]
    return Presence(
        number,
        list(stays),
        [(before(first), last) for first, last in missed],
        refused=[(before(i), i) for i in worker.refused],
        marks=worker.marks,
    )


def _length(stretches: Iterable[Stretch]) -> int:
    return sum(end - begin for begin, end in stretches)


def resumptions(run: RecordedRun) -> list[int]:
    """The iterations from which a run went on after it had stopped."""
    return [row.iteration for row in run.of(Happening) if row.kind == RESUMED]


def eventful(run: RecordedRun, workers: Iterable[Presence]) -> bool:
    """Whether anything out of the ordinary happened to the run or to a worker."""
    return bool(resumptions(run)) or any(worker.eventful for worker in workers)


def said_story(worker: Presence, last: int) -> str:
    """The events of a worker, in words."""
    events = [
        (i, f"{kind} in {i:,}{f' ({reason})' if reason else ''}")
        for kind, i, reason in worker.marks
    ]
    for begin, end in worker.missed:
        if end - begin > max(1.0, _LONG_SHARE * last):
            events.append((begin + 1, f"no answer from {begin + 1:,} to {end:,}"))
    words = [text for _, text in sorted(events, key=lambda item: item[0])]
    more = f"; {len(words) - _MOST_TOLD} more" if len(words) > _MOST_TOLD else ""
    return "; ".join(words[:_MOST_TOLD]) + more


def said_in_all(run: RecordedRun, workers: Sequence[Presence]) -> str:
    """The number of each kind of event in a run, in one clause; empty without events."""
    marks = Counter(mark.kind for worker in workers for mark in worker.marks)
    late, refused = (sum(worker.counts[what] for worker in workers) for what in (LATE, REFUSED))
    resumed = len(resumptions(run))
    counts = (
        (marks[LOST], count(marks[LOST], "loss", "losses")),
        *((marks[kind], f"{marks[kind]:,} {kind}") for kind in (SHUT_OUT, LEFT, JOINED)),
        (late, count(late, "late answer")),
        (refused, count(refused, "refused answer")),
        (resumed, f"resumed {'once' if resumed == 1 else f'{resumed:,} times'}"),
    )
    return ", ".join(text for times, text in counts if times)


def thinned(marks: Sequence[Mark], last: int, most: int) -> list[Mark]:
    """Marks that a reader can tell apart: at most one of a kind in each of `most` stretches."""
    size = max(1.0, last / most)
    return list({(mark.kind, int(mark.iteration / size)): mark for mark in marks}.values())


def most_eventful(workers: Sequence[Presence], most: int) -> list[Presence]:
    """At most `most` workers, by number: those with the most events, and some others."""
    first = sorted(workers, key=lambda w: (not w.eventful, -len(w.marks), -w.counts[LATE]))
    return sorted(first[:most], key=lambda worker: worker.worker)


def _covered(stretches: Sequence[Stretch], until: FloatArray) -> FloatArray:
    """For each end in `until`, how many earlier iterations the ordered `stretches` cover."""
    iterations, covered = [0], [0]
    for begin, end in stretches:
        iterations += [begin, end]
        covered += [covered[-1], covered[-1] + end - begin]
    return np.interp(until, iterations, covered)


SEEN_OFTEN = 500  # samples of a class after which figure 14 of the paper stops counting


def samples_trained(rounds: Sequence[RoundRow]) -> float:
    """Samples in all local batches of the rounds that were not aborted."""
    return float(
        sum(
            one.iterations.get(worker, 0) * one.batch_sizes.get(worker, 0)
            for one in rounds
            for worker in one.counted
        )
    )


def real_counts(held: Mapping[int, Sequence[int]]) -> list[int]:
    """How many samples of each class several workers hold together, from those of each worker."""
    return [sum(counts) for counts in zip_longest(*held.values(), fillvalue=0)]


def seen_of(run: RecordedRun) -> tuple[list[list[int]], list[int]]:
    """Samples of each class seen after every round, and held in all; only of held classes."""
    held = run.holdings()
    real = real_counts(held)
    classes = [c for c, amount in enumerate(real) if amount > 0]
    seen = [0] * len(real)
    after = []
    for one in run.of(RoundRow) if classes else ():
        shown = real_counts({worker: held.get(worker, []) for worker in one.counted})
        seen = [a + b for a, b in zip_longest(seen, shown, fillvalue=0)]
        after.append([seen[c] for c in classes])
    return after, [real[c] for c in classes]


def kl_of_seen(run: RecordedRun) -> list[float]:
    """KL(real ‖ seen) after every round (figure 10); infinite until every class was seen."""
    from scipy.special import rel_entr  # takes a fifth of a second to import

    seen, real = seen_of(run)
    shares = [np.divide(counts, sum(counts) or 1) for counts in seen]
    of_real = np.divide(real, sum(real) or 1)
    # Rounding may bring the divergence of equal shares below 0.
    return [max(0.0, float(rel_entr(of_real, share).sum())) for share in shares]


def rounds_until_seen(run: RecordedRun, times: int = SEEN_OFTEN) -> int | None:
    """Rounds after which every class was seen this many times; None if that never happened."""
    seen = enumerate(seen_of(run)[0], start=1)
    return next((number for number, counts in seen if min(counts) >= times), None)
