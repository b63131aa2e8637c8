"""Builds the state of a run from the rows of `metrics.jsonl`, row by row.

The server, the report, `mdgan watch`, `mdgan compare` and `mdgan chaos` use it.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mdgan.records import happenings, rows
from mdgan.records.values import in_words

COUNTED = ("answered", happenings.LATE, happenings.REFUSED, happenings.LOST)
UNSAVED, UNSCORED = "unsaved", "unscored"
_NEWS = (happenings.JOINED, happenings.RESUMED, *happenings.GOING)
_MOST_NEWS, _MOST_WORKERS, _MOST_DRAWN = 10, 1 << 16, 1 << 14
_PACE_SECONDS = 20.0
_RESUMED_SECONDS = 5.0

Stretch = tuple[int, int]  # (begin, end) of some iterations in a row

_KINDS: dict[str, type[rows.RecordedRow]] = {
    **dict.fromkeys(happenings.KINDS, happenings.Happening),
    **dict.fromkeys((UNSAVED, UNSCORED), rows.WithReason),
    "scores": rows.ScoresRow,
    "swap": rows.Swap,
    "round": rows.RoundRow,
    "attendance": rows.Attended,
    "fetching": rows.Fetching,
    "profile": rows.Profile,
    rows.PLACEMENT: rows.Placed,
    "epsilon": rows.Epsilon,
}
"""Event → its type; other events, which a new family may write, are of type `RecordedRow`."""


def typed_row(record: Mapping[str, Any]) -> rows.RecordedRow:
    """Converts a row of `metrics.jsonl` to its type; ValueError if it makes no sense."""
    if "event" not in record:
        return rows.Losses.of(record)
    return rows.typed(record, _KINDS.get(str(record["event"]), rows.RecordedRow))


class Mark(NamedTuple):
    """When a worker joined or went: the kind of happening, and the reason, if one is known."""

    kind: str
    iteration: int
    reason: str


class LastSwap(NamedTuple):
    """A worker's last swap; `mutual` if its partner got the worker's discriminator in turn."""

    iteration: int
    partner: int
    mutual: bool


class Pace:
    """Iterations per second over the last seconds; `iteration` is the last one."""

    def __init__(self) -> None:
        self.iteration = 0
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, seconds: float, iteration: int) -> None:
        """Notes an iteration at a time of training; starts anew if either goes back on resuming."""
        if self._marks:
            last_seconds, last_iteration = self._marks[-1]
            if iteration < last_iteration or seconds < last_seconds - _RESUMED_SECONDS:
                self._marks.clear()
            elif seconds <= last_seconds:
                self.iteration = iteration
                return
        self.iteration = iteration
        self._marks.append((seconds, iteration))
        while len(self._marks) > 2 and self._marks[1][0] < seconds - _PACE_SECONDS:
            self._marks.popleft()

    def per_second(self) -> float:
        """Iterations per second; 0 while unknown."""
        if len(self._marks) < 2:
            return 0.0
        (then, first), (now, last) = self._marks[0], self._marks[-1]
        return (last - first) / (now - then)


@dataclass
class WorkerState:
    """The records of one worker."""

    here_since: int | None = None  # the iteration after which it came; None while it is absent
    gone: str = ""  # why it is absent: lost, left or shut out; empty if it is present
    # If it is late now: the first iteration without its answer, and the seconds of training then.
    late_since: tuple[int, float] | None = None
    # Earlier stays: the iterations after `begin`, up to and including `end`.
    stays: list[Stretch] = field(default_factory=list)
    # Earlier delays: the first and the last iteration without its answer.
    missed: list[Stretch] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    samples: int | None = None
    classes: list[int] | None = None
    rounds: int = 0
    round_end: int = 0  # the last iteration of its last round
    swap: LastSwap | None = None
    numbers: dict[str, float] = field(default_factory=dict)  # the last, by `WorkerNumbers.key`

    def come(self, iteration: int) -> None:
        """Notes that the worker takes part from now on."""
        self.here_since = iteration if self.here_since is None else self.here_since
        self.gone = ""

    def go(self, iteration: int) -> None:
        """Notes that the worker no longer takes part."""
        self.answer(iteration)
        if self.here_since is not None and iteration > self.here_since:
            self.stays.append((self.here_since, iteration))
        self.here_since = None

    def answer(self, iteration: int) -> None:
        """Notes that the worker is no longer late."""
        if self.late_since is not None and iteration >= self.late_since[0]:
            self.missed.append((self.late_since[0], iteration))
        self.late_since = None


class RunState:
    """The state of a run after the rows taken so far; keeps `most_rows` of each kind, or all."""

    def __init__(self, most_rows: int | None = None) -> None:
        # The scores by training, without those of `mdgan evaluate`.
        self.scores: list[rows.ScoresRow] = []
        # Logged iterations: number, J_gen, J_disc.
        self.losses: list[tuple[int, float | None, float | None]] = []
        self.news: deque[happenings.Happening] = deque(maxlen=_MOST_NEWS)
        self.num_rounds = 0
        # By number, all workers that any row has named, except clients of rounds.
        self.workers: dict[int, WorkerState] = {}
        self.began = False
        self.iteration = 0
        self.seconds = 0.0  # of training, at the last row that is not a score
        # When training would have begun without interruptions, in seconds since 1970.
        self.started = 0.0
        self.happened_until = 0  # the last iteration in which something happened to a worker
        self.pace = Pace()  # of logged iterations, and of rounds that were not aborted
        self.epsilon: dict[int, float] = {}
        self.replaced: dict[int, float] = {}
        self._most_rows = most_rows
        self._by_kind: dict[type, list[Any]] = {}
        self._counted: dict[int, dict[str, int]] = {}
        self._resumed = False

    def take(self, record: Mapping[str, Any]) -> rows.RecordedRow:
        """Takes in one row; if it makes no sense, raises ValueError and changes nothing."""
        row = typed_row(record)
        same = self._by_kind.setdefault(type(row), [])
        same.append(row)
        if self._most_rows is not None:
            del same[: -self._most_rows]
        self.iteration = row.iteration
        if row.seconds is not None and not isinstance(row, rows.ScoresRow):
            self.seconds = row.seconds
        match row:
            case happenings.Happening():
                self._happen(row)
            case rows.ScoresRow() if row.by is None:
                self.scores.append(row)
                if self._most_rows is not None:
                    del self.scores[:-_MOST_DRAWN]
            case rows.Losses():
                self._log(row)
            case rows.RoundRow():
                self.num_rounds += 1
                for number in row.took_part:
                    worker = self.worker(number)
                    worker.rounds += 1
                    worker.round_end = row.iteration
                if not row.aborted:
                    self.pace.add(self.seconds, row.iteration)
            case rows.Swap():
                self._swap(row)
            case rows.Epsilon():
                self.epsilon |= row.epsilon
                self.replaced |= row.replaced
            case rows.Attended():
                self._counted = row.workers
        return row

    def of(self, kind: type[rows.Kind]) -> list[rows.Kind]:
        """The rows of one type, in order."""
        return self._by_kind.get(kind, [])

    @property
    def untold(self) -> list[int]:
        """Workers that may have spent more than `epsilon` says: they ended without telling."""
        gone = (happenings.LOST, happenings.SHUT_OUT)
        return [
            n for n in sorted(self.epsilon) if n in self.workers and self.workers[n].gone in gone
        ]

    def spent_in_words(self, delta: float | None = None) -> tuple[str, str]:
        """Formats the largest ε: `7.99`, `at most (rank 1), 17.30 if a sample is replaced`."""
        most = max(self.epsilon, key=self.epsilon.__getitem__)
        each = most == rows.EVERY_CLIENT
        whose, unit = ("each client", "client") if each else (f"rank {most}", "sample")
        beside = "" if delta is None else f", δ = {delta:g}"
        if self.replaced:
            beside += f", {max(self.replaced.values()):.2f} if a {unit} is replaced"
        if self.untold:
            beside += f"; of rank {in_words(self.untold)} what it told before it was lost"
        return f"{self.epsilon[most]:.2f}", f"at most ({whose}){beside}"

    def worker(self, number: int) -> WorkerState:
        """The state of a worker that a row names; one that is not kept, if there are too many."""
        if number not in self.workers and len(self.workers) == _MOST_WORKERS:
            return WorkerState()
        return self.workers.setdefault(number, WorkerState())

    def reasons(self, event: str) -> list[str]:
        """Why checkpoints could not be made (`UNSAVED`), or the run not scored (`UNSCORED`)."""
        return [row.reason for row in self.of(rows.WithReason) if row.event == event]

    def time_of(self, row: rows.RecordedRow) -> float:
        """When a row was recorded, in seconds since 1970."""
        return self.started + (row.seconds or 0.0)

    def counted(self, worker: int) -> Mapping[str, int]:
        """The server's counts of a worker; empty if resumed, as they cover only the last part."""
        return {} if self._resumed else self._counted.get(worker, {})

    def _log(self, row: rows.Losses) -> None:
        if row.seconds is not None:
            self.pace.add(row.seconds, row.iteration)
        self.losses.append((row.iteration, row.generator_loss, row.discriminator_loss))
        for key, of_workers in row.numbers.items():
            for number, values in of_workers.items():
                self.worker(number).numbers[key] = values[0]
        if self._most_rows is not None and len(self.losses) > _MOST_DRAWN:
            del self.losses[1::2]

    def _swap(self, row: rows.Swap) -> None:
        for giver, taker in row.moves.items():
            if taker in row.arrived:
                mutual = row.moves.get(taker) == giver and giver in row.arrived
                worker = self.worker(taker)
                worker.swap = LastSwap(row.iteration, giver, mutual)

    def _happen(self, row: happenings.Happening) -> None:
        kind, i = row.kind, row.iteration
        self.happened_until = max(self.happened_until, i)
        self._counted = {}
        if kind in (happenings.BEGAN, happenings.RESUMED):
            self._begin(row)
        if kind in _NEWS:
            self.news.append(row)
        self.began |= kind in happenings.COMING
        for number, holding in row.holdings.items():
            worker, classes = self.worker(number), holding.classes
            worker.classes, worker.samples = classes, sum(classes) or holding.samples
        for number in row.workers:
            worker = self.worker(number)
            if kind in happenings.COMING:
                worker.come(i)
            elif worker.here_since is None and not worker.stays and not worker.gone:
                worker.here_since = 0  # its arrival was not recorded
            if kind in happenings.GOING:
                worker.go(i)
                worker.gone = kind
            elif (
                kind == happenings.LATE
                and worker.here_since is not None
                and worker.late_since is None
            ):
                worker.late_since = (i, self.seconds)
            elif kind in (happenings.BACK, happenings.JOINED):
                worker.answer(i)
            elif kind == happenings.REFUSED:
                worker.refused.append(i)
            if kind in (happenings.JOINED, *happenings.GOING):
                worker.marks.append(Mark(kind, i, row.reason))
            if kind in COUNTED:
                worker.counts[kind] += 1

    def _begin(self, row: happenings.Happening) -> None:
        """Takes the row with which a server begins: its workers are present, and none is late."""
        self._resumed |= row.kind == happenings.RESUMED
        if row.time is not None:
            self.started = row.time - (row.seconds or 0.0)
        for number, worker in self.workers.items():
            worker.answer(row.iteration)
            if row.kind == happenings.RESUMED:
                worker.gone = ""
            if worker.here_since is not None and number not in row.workers:
                worker.go(row.iteration)
