"""Plays a schedule of faults on a run, and starts new processes for those that died."""

import contextlib
import json
import logging
import os
import signal
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from mdgan.chaos.actors import Actor, is_alive
from mdgan.chaos.schedule import ChaosEvent
from mdgan.errors import BadInput
from mdgan.launch.faults import SERVER, FaultFolder, RoleProcess, Strike, as_variables
from mdgan.records.happenings import RESUMED, Happening
from mdgan.records.row_reader import METRICS, RunTail
from mdgan.records.rows import Swap
from mdgan.records.run_directory import ENDED, RunDirectory
from mdgan.records.run_state import RunState

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
_ENDING_SECONDS = 20.0
_JOINING_SECONDS = 3.0
_STOPPING_SECONDS = 10.0
_BACK_SECONDS = 10.0
_REFUSED = 2
_RETRY_SECONDS = 1.0
_LOOKS_IN_VAIN = "waiting for the server"
_STANDS_BY = "standing by for the server"
_TAKES_OVER = "taking over at"


@dataclass(frozen=True)
class ChaosCommands:
    """The arguments of the `mdgan` commands that chaos starts."""

    train: Sequence[str]  # starts all ranks of this machine, or only rank 0 if there is a standby
    join: Sequence[str]
    # Starts a standby that can replace the server; None if no standby is needed.
    standby: Sequence[str] | None = None
    # Starts the other ranks of this machine, once the standby runs.
    workers: Sequence[str] | None = None


@dataclass(frozen=True)
class ChaosLimits:
    """Limits that keep a run alive."""

    spare: int  # how many hosts here must be alive at any time
    gap_seconds: float  # the least time between two faults
    rejoin_seconds: float  # between a worker's end and the start of its replacement
    stall_seconds: float  # chaos gives up a run after this time without a recorded iteration


class Noticed(NamedTuple):
    """An event of a worker, with its time in seconds since 1970."""

    time: float
    row: Happening


class History:
    """All records of a run in order, also those that a server that took over has cut off."""

    def __init__(self, folder: Path) -> None:
        self.events: list[Noticed] = []
        self.swaps: list[Swap] = []
        self._run = RunDirectory(folder)
        self._tail = RunTail(folder)
        self._state = RunState()
        self._seen: set[str] = set()

    @property
    def iteration(self) -> int:
        """The last recorded iteration."""
        return self._state.iteration

    def read(self) -> None:
        """Reads new records."""
        for news in self._tail.read():
            for record in news.records if news.name == METRICS else ():
                with contextlib.suppress(ValueError):
                    self._take(record)

    def after(self, moment: float, *kinds: str) -> Iterator[Noticed]:
        """The events of these kinds from a moment on, in order."""
        return (e for e in self.events if e.row.kind in kinds and e.time >= moment)

    def state(self) -> str:
        """`starting`, `running`, `finished`, `stopped`, `failed`, or empty before the start."""
        with contextlib.suppress(BadInput):
            return str(self._run.read_status().get("state", ""))
        return ""

    def _take(self, record: dict[str, Any]) -> None:
        row = self._state.take(record)
        text = json.dumps(record, sort_keys=True)
        if text in self._seen:
            return
        self._seen.add(text)
        if isinstance(row, Happening):
            self.events.append(Noticed(self._state.time_of(row), row))
        elif isinstance(row, Swap):
            self.swaps.append(row)


@dataclass
class ChaosRun:
    """The result of playing a schedule."""

    events: Sequence[ChaosEvent]
    strikes: Mapping[int, Strike]  # the faults that struck, by their place among the events
    # Workers that joined, by their place among the events, each with its rank if it got one.
    comers: Mapping[int, tuple[Actor, int | None]]
    hosts: Collection[int]  # the numbers of all hosts that were ever started here
    history: History
    actors: Sequence[Actor]
    killed: Sequence[int]  # processes that had to be killed at the end
    stalled: bool


def play(
    commands: ChaosCommands, events: Sequence[ChaosEvent], limits: ChaosLimits, run: Path
) -> ChaosRun:
    """Starts a run, lets faults strike it, and waits for its end; leaves no process behind."""
    with tempfile.TemporaryDirectory(prefix="mdgan-chaos-") as made:
        folder = FaultFolder(Path(made))
        director = _Director(commands, events, limits, history=History(run), folder=folder)
        try:
            return director.direct()
        finally:
            director.end_all(0.0)


@dataclass
class _Director:
    """Looks at the run and its processes twenty times a second, and strikes or restarts them."""

    commands: ChaosCommands
    events: Sequence[ChaosEvent]
    limits: ChaosLimits
    history: History
    folder: FaultFolder

    def __post_init__(self) -> None:
        self._actors: list[Actor] = []
        self._comers: dict[int, Actor] = {}
        self._allowed: set[int] = set()
        self._strikes: dict[int, Strike] = {}
        self._known: dict[int, int] = {}  # by strike, the events of the history before it
        self._refused: list[Actor] = []
        self._workers_began = False
        self._halted: list[tuple[float, int]] = []
        self._vacant: list[float] = []
        # Processes know faults by number; joining workers have none, since they start from here.
        self._numbers = [n for n, event in enumerate(self.events) if event.fault is not None]
        self._progress = (0, time.monotonic())

    def direct(self) -> ChaosRun:
        self._start("train", self.commands.train)
        stalled = False
        while not stalled and not self._is_over():
            self.history.read()
            self._see_strikes()
            self._wake_who_is_due()
            self._let_workers_come()
            self._keep_a_standby()
            self._allow_faults()
            now = time.monotonic()
            if self.history.iteration != self._progress[0]:
                self._progress = (self.history.iteration, now)
            stalled = now - self._progress[1] > self.limits.stall_seconds
            time.sleep(_LOOK_SECONDS)
        killed = self.end_all(0.0 if stalled else _ENDING_SECONDS)
        self.history.read()
        hosts = self._hosts()
        rank_of = {host.session: int(host.role[5:]) for host in hosts}
        return ChaosRun(
            self.events,
            self._strikes,
            {n: (actor, rank_of.get(actor.session)) for n, actor in self._comers.items()},
            hosts={int(host.role[5:]) for host in hosts},
            history=self.history,
            actors=self._actors,
            killed=killed,
            stalled=stalled,
        )

    def end_all(self, patience_seconds: float) -> list[int]:
        """Ends every process, after it had time to end by itself."""
        for names, seconds in (
            (("train", "workers", "standby"), patience_seconds),
            (("join",), min(patience_seconds, _JOINING_SECONDS)),
        ):
            awaited = [actor for actor in self._actors if actor.name in names]
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and any(actor.status is None for actor in awaited):
                time.sleep(_LOOK_SECONDS)
                self._wake_who_is_due()
        for actor in self._actors:
            actor.ask_to_stop()  # for example a worker that is about to join a finished run
        return [process for actor in self._actors for process in actor.end(_STOPPING_SECONDS)]

    def _start(self, name: str, arguments: Sequence[str]) -> Actor:
        faults = [event.fault for event in self.events if event.fault is not None]
        actor = Actor(name, arguments, as_variables(faults, self.folder.path))
        self._actors.append(actor)
        return actor

    def _is_over(self) -> bool:
        if self.history.state() in ENDED:
            return True
        # A joining worker whose run is over would search for the server for a long time.
        joined = {process.session for process in self.folder.processes()}
        left = [actor for actor in self._actors if actor.status is None]
        return all(
            a.name == "join" and a.session not in joined and a.said(_LOOKS_IN_VAIN) for a in left
        )

    def _see_strikes(self) -> None:
        for number, strike in self.folder.struck().items():
            place = self._numbers[number]
            if place in self._strikes:
                continue
            self._strikes[place] = strike
            self._known[place] = len(self.history.events)
            event = self.events[place]
            _announce(f"{event} in iteration {strike.iteration}")
            if event.halt_seconds:
                self._halted.append((strike.moment + event.halt_seconds, strike.process))
            elif event.kind != "server":
                self._vacant.append(strike.moment + self.limits.rejoin_seconds)

    def _wake_who_is_due(self) -> None:
        now = time.monotonic()
        for moment, process in self._halted:
            if moment <= now:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
        self._halted = [(moment, process) for moment, process in self._halted if moment > now]

    def _let_workers_come(self) -> None:
        """Starts the workers that should join, and one for every worker that died."""
        now = time.monotonic()
        for actor in self._actors:
            if actor.name == "join" and actor.status == _REFUSED and actor not in self._refused:
                self._refused.append(actor)  # another worker got its rank, or no server ran
                self._vacant.append(now + _RETRY_SECONDS)
        for _ in filter(lambda moment: moment <= now, self._vacant):
            self._start("join", self.commands.join)
        self._vacant = [moment for moment in self._vacant if moment > now]
        for place, event in enumerate(self.events):
            is_due = event.fault is None and event.iteration <= self.history.iteration
            if is_due and place not in self._comers:
                _announce(str(event))
                self._comers[place] = self._start("join", self.commands.join)

    def _keep_a_standby(self) -> None:
        """Keeps a standby running while one may be needed; workers start after the first."""
        places = [place for place, event in enumerate(self.events) if event.kind == "server"]
        needed = any(place not in self._strikes for place in places)
        standby, workers = self.commands.standby, self.commands.workers
        if standby is not None and needed and self.history.state() and not self._standbys():
            self._start("standby", standby)
        if workers is not None and not self._workers_began and (self._has_standby() or not needed):
            self._workers_began = True
            self._start("workers", workers)

    def _standbys(self) -> list[Actor]:
        actors = [actor for actor in self._actors if actor.name == "standby"]
        return [a for a in actors if a.status is None and not a.said(_TAKES_OVER)]

    def _has_standby(self) -> bool:
        """Whether a standby watches the present server."""
        return any(actor.said(_STANDS_BY) for actor in self._standbys())

    def _hosts(self) -> list[RoleProcess]:
        return [process for process in self.folder.processes() if process.role != SERVER]

    def _allow_faults(self) -> None:
        """Lets a fault strike as soon as the run can spare its process."""
        gap = self.limits.gap_seconds
        last = max((strike.moment for strike in self._strikes.values()), default=-inf)
        rests = time.monotonic() - last
        if rests < gap or (gap and self._pending()):
            return
        for number, place in enumerate(self._numbers):
            if number not in self._allowed and self._can_be_spared(self.events[place]):
                self._allowed.add(number)
                self.folder.allow(number)
                if gap:
                    return

    def _pending(self) -> list[str]:
        places = (self._numbers[number] for number in self._allowed)
        return [self.events[place].kind for place in places if place not in self._strikes]

    def _can_be_spared(self, event: ChaosEvent) -> bool:
        kinds = self._pending()
        if event.kind == "stop":
            return True
        if event.kind == "server":
            return self._has_standby() and "server" not in kinds and self._has_server()
        struck = [(self.events[place], strike) for place, strike in self._strikes.items()]
        doomed = {strike.process for event, strike in struck if not event.halt_seconds}
        hosts = {host.process for host in self._hosts()} - doomed
        at_risk = sum(kind in ("kill", "leave") for kind in kinds)
        return len(list(filter(is_alive, hosts))) - at_risk > self.limits.spare

    def _has_server(self) -> bool:
        """Whether training has gone on since the last fault of the server."""
        struck = [
            (s.moment, n) for n, s in self._strikes.items() if self.events[n].kind == "server"
        ]
        if not struck:
            return True
        moment, place = max(struck)
        halted = self.events[place].halt_seconds  # it may have woken up before it was replaced
        is_back = halted and time.monotonic() > moment + halted + _BACK_SECONDS
        # Counted, as the clock of the records may have been set meanwhile.
        since = self.history.events[self._known[place] :]
        return bool(is_back) or any(event.row.kind == RESUMED for event in since)


def _announce(text: str) -> None:
    _log.info("%9s | %s", "chaos", text, extra={"shown": "result"})
