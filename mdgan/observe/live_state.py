"""What the files of a run say so far, taken in line by line."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from mdgan.observe.tracer import WINDOW
from mdgan.records import happenings
from mdgan.records.diagnosis import LOSSES_NEEDED
from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, RESUMED, SHUT_OUT, Happening
from mdgan.records.recorded_run import Trace, Traffic, typed_row
from mdgan.records.roles import first_worker, leader
from mdgan.records.rows import Epsilon, Losses, Round, Scores, Swap
from mdgan.records.series import Series
from mdgan.records.values import number

_NEWS = (LOST, SHUT_OUT, LEFT, JOINED, RESUMED)
_REMEMBERED_NEWS = 10
_WAITING = ("receive", "wait")
_PACE_SECONDS = 20.0
_TRAFFIC_SECONDS = 5.0
_RESUMED_SECONDS = 5.0


class LastSwap(NamedTuple):
    """A worker's last swap.

    Attributes:
        iteration: after which they swapped.
        partner: the worker whose discriminator it got.
        mutual: whether the partner got its own.
    """

    iteration: int
    partner: int
    mutual: bool


class Part(NamedTuple):
    """A worker's part in rounds.

    Attributes:
        rounds: in how many it took part.
        iteration: the one with which the last of these rounds ended.
    """

    rounds: int
    iteration: int


class Pace:
    """How fast iterations have been done recently.

    Attributes:
        iteration: the last one.
    """

    def __init__(self) -> None:
        self.iteration = 0
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, seconds: float, iteration: int) -> None:
        """An iteration was under way at a time since training began; both go back on resuming."""
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


class Metrics:
    """What `metrics.jsonl` holds.

    Attributes:
        generator_loss: mean over the workers.
        discriminator_loss: mean over the workers.
        fid: of the generator, as training scored it; `mdgan evaluate` may have added scores by
            another network, which are left out.
        fid_floor: of real data against real data, if known.
        newest: the last logged iterations.
        scores: by the same network as `fid`.
        news: workers that came or went, in order.
        here: the workers that take part, as far as it is recorded.
        gone: how each worker that is not here went: lost, left or shut out.
        late: workers without whose answers the server has gone on, with the time since when, in
            seconds since training began.
        swaps: the last swap of each worker.
        parts: what each worker did in rounds.
        rounds: how many rounds there were; 0 where there are none.
        samples: how many samples each worker holds.
        epsilon: what the samples of each worker have spent; empty without privacy.
        riding: each worker's score for free riding, as recorded last.
        pace: of the recorded iterations, and of the rounds that were not aborted.
        seconds: since training began, at the last record.
    """

    def __init__(self) -> None:
        self.generator_loss = Series()
        self.discriminator_loss = Series()
        self.fid = Series()
        self.fid_floor: float | None = None
        self.newest: deque[Losses] = deque(maxlen=LOSSES_NEEDED)
        self.scores: list[Scores] = []
        self.news: deque[Happening] = deque(maxlen=_REMEMBERED_NEWS)
        self.here: set[int] = set()
        self.gone: dict[int, str] = {}
        self.late: dict[int, float] = {}
        self.swaps: dict[int, LastSwap] = {}
        self.parts: dict[int, Part] = {}
        self.rounds = 0
        self.samples: dict[int, int] = {}
        self.epsilon: dict[int, float] = {}
        self.riding: dict[int, float] = {}
        self.pace = Pace()
        self.seconds = 0.0

    def take(self, record: Mapping[str, Any]) -> None:
        """Takes in one line.

        Raises:
            ValueError: it makes no sense.
        """
        row = typed_row(record)
        if row.seconds is not None and not isinstance(row, Scores):
            self.seconds = row.seconds
        if isinstance(row, Happening):
            self._happen(row)
        elif isinstance(row, Losses) and row.seconds is not None:
            self.generator_loss.add(row.iteration, row.generator_loss)
            self.discriminator_loss.add(row.iteration, row.discriminator_loss)
            self.pace.add(self.seconds, row.iteration)
            self.newest.append(row)
            self.riding.update(row.riding)
        elif isinstance(row, Epsilon):
            self.epsilon |= row.epsilon
        elif isinstance(row, Round):
            self._end_round(row)
        elif isinstance(row, Swap):
            for giver, taker in row.moves.items():
                if taker in row.arrived:
                    mutual = row.moves.get(taker) == giver and giver in row.arrived
                    self.swaps[taker] = LastSwap(row.iteration, giver, mutual)
        elif isinstance(row, Scores) and row.by is None and "fid" in row.scores:
            self.fid.add(row.iteration, row.scores["fid"])
            self.scores.append(row)
            self.fid_floor = number(row.floor.get("fid", self.fid_floor))

    def _end_round(self, row: Round) -> None:
        self.rounds += 1
        for rank in row.took_part:
            before = self.parts.get(rank, Part(0, 0))
            self.parts[rank] = Part(before.rounds + 1, row.iteration)
        if not row.aborted:
            self.pace.add(self.seconds, row.iteration)

    def _happen(self, found: Happening) -> None:
        self.samples.update(found.samples)
        ranks = set(found.workers)
        if found.kind == RESUMED:
            self.gone, self.late = {}, {}
        if found.kind in (happenings.BEGAN, RESUMED):
            self.here = ranks
        elif found.kind == JOINED:
            self.here |= ranks
        elif found.kind in (LOST, LEFT, SHUT_OUT):
            self.here -= ranks
            self.gone.update(dict.fromkeys(ranks, found.kind))
        elif found.kind == LATE:
            self.late.update(dict.fromkeys(ranks, self.seconds))
        if found.kind in _NEWS:
            self.news.append(found)
        if found.kind not in (LATE, happenings.REFUSED):
            for rank in ranks:
                self.late.pop(rank, None)
        for rank in self.here:
            self.gone.pop(rank, None)


class Role:
    """What one role's timeline holds.

    Attributes:
        name: of the role.
        leads: whether it owns the generator.
        iteration: the last one that it recorded.
        seconds: when that was, since training began.
        pace: of its iterations.
        work: seconds of work by worker, then by iteration; of the last recorded iterations.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.iteration = 0
        self.seconds = 0.0
        self.pace = Pace()
        self.work: dict[int, dict[int, float]] = {}
        self.leads = leader([name]) is not None
        if first := first_worker(name):
            self.work[first] = {}
        self._traffic: deque[Traffic] = deque()

    def take(self, record: Mapping[str, Any]) -> None:
        """Takes in one row.

        Raises:
            KeyError, TypeError, ValueError: it makes no sense.
        """
        row = Trace(self.name)
        row.add(record)
        for traffic in row.traffic:
            self._at(traffic.seconds, traffic.iteration)
            self._traffic.append(traffic)
            while len(self._traffic) > 2 and self._traffic[1].seconds <= self._recent():
                self._traffic.popleft()
        for iteration, spans in row.spans.items():
            for span in spans:
                if span.name not in _WAITING and span.worker:
                    self._add_work(span.worker, iteration, span.seconds)
            if spans:
                self._at(max(span.start + span.seconds for span in spans), iteration)

    def step_seconds(self, worker: int) -> list[float]:
        """A worker's work in each of the last iterations, without one that may be incomplete."""
        work = [seconds for number, seconds in sorted(self.work[worker].items()) if number > 0]
        return work[:-1] if len(work) > 1 else work

    def bytes_per_second(self, *, ended: bool) -> tuple[float | None, float | None]:
        """Bytes received and sent a second: recently, or over the whole of an ended run."""
        if not self._traffic:
            return None, None
        start = Traffic(0, 0.0, {}, {})
        before = start if ended or len(self._traffic) < 2 else self._traffic[0]
        after = self._traffic[-1]
        seconds = after.seconds - before.seconds
        received = sum(after.received.values()) - sum(before.received.values())
        sent = sum(after.sent.values()) - sum(before.sent.values())
        if seconds <= 0 or received < 0 or sent < 0:
            return None, None
        return received / seconds, sent / seconds

    def _at(self, seconds: float, iteration: int) -> None:
        self.iteration, self.seconds = iteration, seconds
        self.pace.add(seconds, iteration)

    def _recent(self) -> float:
        return self._traffic[-1].seconds - _TRAFFIC_SECONDS

    def _add_work(self, worker: int, iteration: int, seconds: float) -> None:
        work = self.work.setdefault(worker, {})
        work[iteration] = work.get(iteration, 0.0) + seconds
        if len(work) > WINDOW + 1:
            del work[next(iter(work))]
