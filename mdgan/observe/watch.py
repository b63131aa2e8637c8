"""Follows a run by its files, for `mdgan watch`: its progress, pace, and the states of workers."""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from mdgan.observe.tracer import WINDOW
from mdgan.records.diagnosis import LOSSES_NEEDED, Finding, diagnose
from mdgan.records.happenings import LEFT, LOST, SHUT_OUT
from mdgan.records.recorded_run import Trace, TrafficCount
from mdgan.records.roles import SERVER, first_worker, leader
from mdgan.records.row_reader import METRICS, RunTail
from mdgan.records.rows import Losses
from mdgan.records.run_directory import ENDED, RunDirectory
from mdgan.records.run_state import Pace, RunState, WorkerState
from mdgan.records.values import number_in

_WAITING = ("receive", "wait")
_TRAFFIC_SECONDS = 5.0


class RoleNow:
    """What one role does now; `work` is worker → iteration → seconds, of the last iterations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.iteration = 0
        self.seconds = 0.0
        self.pace = Pace()
        self.work: dict[int, dict[int, float]] = {}
        self.leads = leader([name]) is not None
        if first := first_worker(name):
            self.work[first] = {}
        self._traffic: deque[TrafficCount] = deque()

    def take(self, record: Mapping[str, Any]) -> None:
        """Takes in one row of the role's file; ValueError if the row makes no sense."""
        row = Trace(self.name)
        row.add(record)
        for traffic in row.traffic:
            self._at(traffic.seconds, traffic.iteration)
            self._traffic.append(traffic)
            recently = traffic.seconds - _TRAFFIC_SECONDS
            while len(self._traffic) > 2 and self._traffic[1].seconds <= recently:
                self._traffic.popleft()
        for iteration, spans in row.spans.items():
            for span in spans:
                if span.name not in _WAITING and span.worker:
                    work = self.work.setdefault(span.worker, {})
                    work[iteration] = work.get(iteration, 0.0) + span.seconds
                    if len(work) > WINDOW + 1:
                        del work[next(iter(work))]
            if spans:
                self._at(max(span.end for span in spans), iteration)

    def step_seconds(self, worker: int) -> list[float]:
        """Seconds of a worker in each of the last iterations; skips one that may be incomplete."""
        work = [seconds for number, seconds in sorted(self.work[worker].items()) if number > 0]
        return work[:-1] if len(work) > 1 else work

    def bytes_per_second(self, *, ended: bool) -> tuple[float | None, float | None]:
        """Bytes received and sent a second, in the last seconds or over a run that has ended."""
        if not self._traffic:
            return None, None
        start = TrafficCount(0, 0.0, sent={}, received={})
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


_LATE_SECONDS = 5.0
_LATE_STEPS = 5
_LATE_FOR = 1.0  # seconds that a worker must be late before it is shown as late
_MOST_RANKS = 1_000_000
_STATE_WHEN_GONE = {LOST: "lost", LEFT: "left", SHUT_OUT: "out"}
_UNRECORDED_SECONDS = 3.0  # how far records may lag: roles write about once a second, unaligned


class WorkerRow(NamedTuple):
    """The state of one worker; a field is None if it is not known."""

    rank: int
    role: str | None
    state: str  # alive, late, lost, left, out (shut out), or done once the run has ended
    iteration: int | None  # the last that its process recorded, or the end of its last round
    # The mean time of its work in one of the last recorded iterations or rounds.
    step_seconds: float | None
    received_per_second: float | None  # bytes of its process, in the last seconds or the whole run
    sent_per_second: float | None
    rounds: int | None  # in how many rounds it took part; None if placed clients do
    samples: int | None
    recorded: WorkerState


class WatchedRun:
    """A run that `mdgan watch` shows; `update` reads what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail = RunTail(path)
        run = RunDirectory.open(path)
        self.status: Mapping[str, Any] = run.read_status()
        self.config = run.read_config()
        self.state = RunState(LOSSES_NEEDED)
        self.roles: dict[str, RoleNow] = {}
        self._modified: dict[Path, float] = {}
        self._quiet_since = time.monotonic()  # not `time.time`: users may set that clock
        self.update()

    def update(self) -> None:
        """Reads all that was written since the last call; BadInput if the run is gone."""
        self.status = RunDirectory.open(self.path).read_status()
        for name, anew, records in self._tail.read():
            taker: RunState | RoleNow
            if name == METRICS:
                self.state = taker = RunState(LOSSES_NEEDED) if anew else self.state
            else:
                self.roles[name] = taker = RoleNow(name) if anew else self.roles[name]
            for record in records:
                with suppress(ValueError):  # a bad line must not hide the others
                    taker.take(record)
        if self._tail.modified != self._modified:
            self._modified = dict(self._tail.modified)
            quiet = time.time() - max(self._modified.values(), default=inf)
            self._quiet_since = time.monotonic() - max(0.0, quiet)

    @property
    def quiet_seconds(self) -> float:
        """How long no process has written to a file of the run."""
        return time.monotonic() - self._quiet_since

    @property
    def stage(self) -> str:
        """The state in `run.json`, such as running, finished, stopped or failed."""
        return str(self.status.get("state", "running"))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.stage in ENDED

    @property
    def iterations(self) -> int:
        """I, the number of iterations that the user asked for."""
        return int(number_in(self.config, "iterations") or 0)

    @property
    def iteration(self) -> int:
        """The last iteration recorded; of an ended run, or with rounds, the last complete one."""
        recorded = int(self.status.get("iteration", 0))
        if self.ended:
            return recorded
        if self.in_rounds:  # from a round's start, roles record it under the round's last iteration
            return max(recorded, self.state.pace.iteration)
        reached = (role.iteration for role in self.roles.values())
        return max(recorded, self.state.pace.iteration, *reached)

    @property
    def in_rounds(self) -> bool:
        """Whether the run has rounds, in which not every worker needs to take part."""
        return self.state.num_rounds > 0 or self.config.get("sampling") is not None

    @property
    def num_clients(self) -> int:
        """How many clients the server places on hosts; 0 if each client has its own rank."""
        return int(number_in(self.config, "clients") or 0)

    @property
    def finding(self) -> Finding | None:
        """The diagnosis, if something seems to go wrong."""
        return diagnose(self.state.of(Losses), self.state.scores, self.config)

    @property
    def seconds(self) -> float:
        """Seconds of training when `run.json` was last written."""
        return float(self.status.get("seconds", 0.0))

    @property
    def iterations_per_second(self) -> float:
        """The pace of the last seconds, or of a whole run that has ended; 0 while unknown."""
        if self.ended:
            return self.iteration / self.seconds if self.seconds > 0 else 0.0
        if self.in_rounds:
            return self.state.pace.per_second()
        paces = [role.pace for role in self.roles.values() if role.leads] + [self.state.pace]
        measured = [pace for pace in paces if pace.per_second() > 0]
        return max(measured, key=lambda pace: pace.iteration).per_second() if measured else 0.0

    def workers(self) -> list[WorkerRow]:
        """All workers by rank; empty for a run of one process without server and hosts."""
        carriers = {rank: role for role in self.roles.values() for rank in role.work}
        leaders = {role.name for role in self.roles.values() if role.leads}
        if leaders and SERVER not in leaders and not carriers:
            return []
        world_size = int(number_in(self.config, "world_size") or 1)
        expected = range(1, min(world_size, _MOST_RANKS + 1))
        named = {} if self.num_clients or not self.state.began else self.state.workers
        present = {rank for rank, worker in named.items() if worker.here_since is not None}
        absent = {rank for rank, worker in self.state.workers.items() if worker.gone}
        ranks = present | absent | carriers.keys() | set(expected)
        return [self._worker(rank, carriers.get(rank), present) for rank in sorted(ranks)]

    def _worker(self, rank: int, role: RoleNow | None, present: set[int]) -> WorkerRow:
        recorded = self.state.workers.get(rank, WorkerState())
        steps = role.step_seconds(rank) if role else []
        is_missing = bool(present) and rank not in present  # training goes on without it
        state = self._state_of(recorded, role, steps, is_missing=is_missing)
        received, sent = None, None
        if role and state not in _STATE_WHEN_GONE.values():
            received, sent = role.bytes_per_second(ended=self.ended)
        iteration, of_clients = role.iteration if role else None, bool(self.num_clients)
        if self.in_rounds and not of_clients:
            iteration = recorded.round_end or None
        return WorkerRow(
            rank=rank,
            role=role.name if role else None,
            state=state,
            iteration=iteration,
            step_seconds=fmean(steps) if steps else None,
            received_per_second=received,
            sent_per_second=sent,
            rounds=None if of_clients else recorded.rounds,
            samples=None if of_clients else recorded.samples,
            recorded=recorded,
        )

    def _state_of(
        self, recorded: WorkerState, role: RoleNow | None, steps: list[float], *, is_missing: bool
    ) -> str:
        if recorded.gone:
            return _STATE_WHEN_GONE[recorded.gone]
        if is_missing:
            return "lost"
        if self.ended:
            return "done"
        if recorded.late_since and self._seconds_since(recorded.late_since[1]) > _LATE_FOR:
            return "late"
        return "late" if role and self._is_late(role, steps) else "alive"

    def _seconds_since(self, seconds: float) -> float:
        """How long ago a moment was that is given in seconds from the start of training."""
        recorded = (role.seconds for role in self.roles.values())
        return self.quiet_seconds + max([self.state.seconds, *recorded]) - seconds

    def _is_late(self, role: RoleNow, steps: list[float]) -> bool:
        """Whether a role has recorded too few iterations for too long, compared with others."""
        if self.in_rounds:
            return False
        behind = self.iteration - role.iteration
        silent_seconds = self._seconds_since(role.seconds)
        patience = max(_LATE_SECONDS, _LATE_STEPS * median(steps) if steps else 0.0)
        unrecorded = max(WINDOW, _UNRECORDED_SECONDS * self.iterations_per_second)
        return behind > unrecorded or (behind > 0 and silent_seconds > patience)
