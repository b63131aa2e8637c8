"""A run as it is now, finished or not."""

import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from mdgan.observe.live_state import LastSwap, Metrics, Role
from mdgan.observe.tracer import WINDOW
from mdgan.records.diagnosis import Finding, diagnose
from mdgan.records.happenings import LEFT, LOST, SHUT_OUT
from mdgan.records.roles import SERVER
from mdgan.records.run_directory import ENDED, RunDirectory
from mdgan.records.run_tail import METRICS, RunTail
from mdgan.records.values import number_in

_LATE_SECONDS = 5.0
_LATE_STEPS = 5
_LATE_FOR = 1.0
"""Seconds: a worker that is late for less is not shown as late."""
_MOST_RANKS = 1_000_000
_STATE_WHEN_GONE = {LOST: "lost", LEFT: "left", SHUT_OUT: "out"}
_UNTOLD_SECONDS = 3.0
"""Roles record what they did about once a second, each at its own moment."""


class WorkerRow(NamedTuple):
    """What is known of one worker; None where it is not known.

    Attributes:
        rank: its number.
        role: the process that carries it.
        state: alive, late, lost, left, out (shut out), or done once the run has ended.
        iteration: the last one that its process recorded; in a run with rounds, the end of the last
            round in which the worker took part.
        step_seconds: mean time of its work in one iteration or round, of the last recorded ones.
        received_per_second: bytes that its process received, recently or over an ended run.
        sent_per_second: bytes that its process sent, over the same time.
        swap: its last swap.
        rounds: in how many rounds it took part; None if clients without a home do.
        samples: how many samples it holds.
        riding: its score for free riding, in standard deviations from 0.
    """

    rank: int
    role: str | None
    state: str
    iteration: int | None
    step_seconds: float | None
    received_per_second: float | None
    sent_per_second: float | None
    swap: LastSwap | None
    rounds: int | None
    samples: int | None
    riding: float | None


class WatchedRun:
    """A run that is being watched; `update` brings it up to date.

    Args:
        path: its folder.

    Attributes:
        path: its folder.
        config: its settings.
        status: what `run.json` holds.
        metrics: what `metrics.jsonl` holds.
        roles: what each timeline holds, by role.

    Raises:
        BadInput: not a run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail = RunTail(path)
        run = RunDirectory.open(path)
        self.status: Mapping[str, Any] = run.read_status()
        self.config = run.read_config()
        self.metrics = Metrics()
        self.roles: dict[str, Role] = {}
        self._modified: dict[Path, float] = {}
        self._quiet_since = time.monotonic()  # the other clock may be set meanwhile
        self.update()

    def update(self) -> None:
        """Takes in everything that was written since the last call.

        Raises:
            BadInput: the run is gone.
        """
        self.status = RunDirectory.open(self.path).read_status()
        for name, anew, records in self._tail.read():
            taker: Metrics | Role
            if name == METRICS:
                self.metrics = taker = Metrics() if anew else self.metrics
            else:
                self.roles[name] = taker = Role(name) if anew else self.roles[name]
            for record in records:
                try:
                    taker.take(record)
                except ValueError:
                    continue  # one line that makes no sense must not hide all others
        if self._tail.modified != self._modified:
            self._modified = dict(self._tail.modified)
            quiet = time.time() - max(self._modified.values(), default=inf)
            self._quiet_since = time.monotonic() - max(0.0, quiet)

    @property
    def quiet_seconds(self) -> float:
        """For how long no file of the run has been written to."""
        return time.monotonic() - self._quiet_since

    @property
    def state(self) -> str:
        """What `run.json` says: running, finished, stopped or failed."""
        return str(self.status.get("state", "running"))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.state in ENDED

    @property
    def iterations(self) -> int:
        """I, how many iterations the run was to do."""
        return int(number_in(self.config, "iterations") or 0)

    @property
    def iteration(self) -> int:
        """The last complete one of an ended run, or with rounds; else the last recorded one."""
        recorded = int(self.status.get("iteration", 0))
        if self.ended:
            return recorded
        if self.in_rounds:  # roles record a whole round under its last iteration from its start on
            return max(recorded, self.metrics.pace.iteration)
        reached = (role.iteration for role in self.roles.values())
        return max(recorded, self.metrics.pace.iteration, *reached)

    @property
    def in_rounds(self) -> bool:
        """Whether it has rounds, in which not every worker needs to take part."""
        return self.metrics.rounds > 0 or self.config.get("sampling") is not None

    @property
    def num_clients(self) -> int:
        """How many clients without a home there are; 0 if every worker has one."""
        return int(number_in(self.config, "clients") or 0)

    @property
    def _here(self) -> set[int]:
        """The ranks that take part, as far as it is recorded."""
        return set() if self.num_clients else self.metrics.here

    @property
    def finding(self) -> Finding | None:
        """What the run looks like, if something seems to go wrong."""
        return diagnose(list(self.metrics.newest), self.metrics.scores, self.config)

    @property
    def seconds(self) -> float:
        """How long training had taken when `run.json` was last written."""
        return float(self.status.get("seconds", 0.0))

    @property
    def iterations_per_second(self) -> float:
        """Recently, or over the whole of an ended run; 0 while unknown."""
        if self.ended:
            return self.iteration / self.seconds if self.seconds > 0 else 0.0
        if self.in_rounds:
            return self.metrics.pace.per_second()
        paces = [role.pace for role in self.roles.values() if role.leads] + [self.metrics.pace]
        known = [pace for pace in paces if pace.per_second() > 0]
        return max(known, key=lambda pace: pace.iteration).per_second() if known else 0.0

    def workers(self) -> list[WorkerRow]:
        """All workers by rank; none in a run of one process that has no server and no hosts."""
        carriers = {rank: role for role in self.roles.values() for rank in role.work}
        leaders = {role.name for role in self.roles.values() if role.leads}
        if leaders and SERVER not in leaders and not carriers:
            return []
        world_size = int(number_in(self.config, "world_size") or 1)
        expected = range(1, min(world_size, _MOST_RANKS + 1))
        ranks = self._here | self.metrics.gone.keys() | carriers.keys() | set(expected)
        return [self._worker(rank, carriers.get(rank)) for rank in sorted(ranks)]

    def _worker(self, rank: int, role: Role | None) -> WorkerRow:
        steps = role.step_seconds(rank) if role else []
        state = self._state_of(rank, role, steps)
        received, sent = None, None
        if role and state not in _STATE_WHEN_GONE.values():
            received, sent = role.bytes_per_second(ended=self.ended)
        iteration = role.iteration if role else None
        part, samples = self.metrics.parts.get(rank), self.metrics.samples.get(rank)
        if self.num_clients:  # what is recorded of rounds and samples is of clients
            part = samples = None
        elif self.in_rounds:
            iteration = part.iteration if part else None
        return WorkerRow(
            rank=rank,
            role=role.name if role else None,
            state=state,
            iteration=iteration,
            step_seconds=fmean(steps) if steps else None,
            received_per_second=received,
            sent_per_second=sent,
            swap=self.metrics.swaps.get(rank),
            rounds=None if self.num_clients else part.rounds if part else 0,
            samples=samples,
            riding=self.metrics.riding.get(rank),
        )

    def _state_of(self, rank: int, role: Role | None, steps: list[float]) -> str:
        if rank in self.metrics.gone:
            return _STATE_WHEN_GONE[self.metrics.gone[rank]]
        if self._here and rank not in self._here:
            return "lost"  # the run went on without it
        if self.ended:
            return "done"
        if rank in self.metrics.late and self._seconds_since(self.metrics.late[rank]) > _LATE_FOR:
            return "late"
        return "late" if role and self._is_late(role, steps) else "alive"

    def _seconds_since(self, seconds: float) -> float:
        """How long ago something was, given the seconds from the start of training until then."""
        recorded = (role.seconds for role in self.roles.values())
        return self.quiet_seconds + max([self.metrics.seconds, *recorded]) - seconds

    def _is_late(self, role: Role, steps: list[float]) -> bool:
        """Whether a role has recorded nothing of what others did long ago.

        A role at the furthest iteration waits for the others, however long it has been silent. With
        rounds silence means nothing, as most workers need not take part; there the server records
        which are late.
        """
        if self.in_rounds:
            return False
        behind = self.iteration - role.iteration
        silent_seconds = self._seconds_since(role.seconds)
        patience = max(_LATE_SECONDS, _LATE_STEPS * median(steps) if steps else 0.0)
        untold = max(WINDOW, _UNTOLD_SECONDS * self.iterations_per_second)
        return behind > untold or (behind > 0 and silent_seconds > patience)
