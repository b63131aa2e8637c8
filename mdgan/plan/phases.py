"""How long a role is in each phase of a step, by when its tracer's spans begin.

Seconds are charged by the clock, and as computed on all cores. Where processes share cores, only
the latter say what a phase costs; what a phase gains by threads, only the former.
"""

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple

_WAITING = ("wait", "receive")
"""Where the server waits for answers, and a host for questions; reading them is part of it."""
MESSAGES = (*_WAITING, "send")
WARM_UP = 2
"""Steps that do not count."""


class Charge(NamedTuple):
    """One stay in a phase.

    Attributes:
        phase: its name.
        seconds: by the clock.
        busy_seconds: computed, on all cores together.
    """

    phase: str
    seconds: float
    busy_seconds: float


class PhaseClock:
    """What a tracer calls when a span begins; charges the phase before.

    Args:
        turn: held while a role computes, so that it has all cores; None if all may compute at once.
        busy_clock: tells the seconds that were computed.
        stop_after: the least steps and seconds after which the server asks itself to stop; None
            if it comes to an end by itself.

    Attributes:
        charges: in order.
    """

    def __init__(
        self,
        turn: threading.Lock | None,
        busy_clock: Callable[[], float],
        stop_after: tuple[int, float] | None,
    ) -> None:
        self.charges: list[Charge] = []
        self._turn = turn
        self._holds_turn = False
        self._busy_clock = busy_clock
        self._stop_after = stop_after
        self._steps = 0
        self._began = 0.0
        self._phase = ""
        self._since = self._busy_since = 0.0

    def __call__(self, phase: str, _iteration: int) -> None:
        """A phase begins."""
        if self._phase:
            busy, seconds = self._busy_clock(), time.perf_counter()
            charge = Charge(self._phase, seconds - self._since, busy - self._busy_since)
            self.charges.append(charge)
        self._phase = phase.replace(" ", "-")
        if self._turn is not None:
            self._take_turns(self._turn)
        if self._stop_after is not None and phase == "wait":
            self._count_step(*self._stop_after)
        self._since, self._busy_since = time.perf_counter(), self._busy_clock()

    def _take_turns(self, turn: threading.Lock) -> None:
        waits = self._phase in _WAITING
        if waits and self._holds_turn:
            turn.release()
        elif not waits and not self._holds_turn:
            turn.acquire()
        self._holds_turn = not waits

    def _count_step(self, steps: int, seconds: float) -> None:
        self._steps += 1
        if self._steps == WARM_UP:
            self._began = time.monotonic()
        if self._steps > WARM_UP + steps and time.monotonic() - self._began > seconds:
            signal.raise_signal(signal.SIGTERM)


Seconds = dict[str, float]
"""In a usual step, by phase."""


class HostStages(NamedTuple):
    """What a host does in a usual step.

    Attributes:
        asked: from a question to its answer.
        ahead: from the answer to the next question.
        exchange: seconds of all that not every step has, together.
    """

    asked: Seconds
    ahead: Seconds
    exchange: float


def server_stages(charges: Iterable[Charge], phases: Sequence[str], *, busy: bool) -> Seconds:
    """What the server does in a usual step.

    Args:
        charges: of the server.
        phases: that every step has, the one that a step begins with first.
        busy: whether computed seconds are wanted; by the clock if not.
    """
    return _medians(_plain_steps(charges, phases), busy=busy)


def step_seconds(charges: Iterable[Charge], phases: Sequence[str]) -> float:
    """What a usual step takes by the server's clock; arguments as `server_stages`."""
    steps = _plain_steps(charges, phases)
    return median(sum(charge.seconds for charge in step) for step in steps)


def host_stages(charges: Iterable[Charge], phases: Collection[str], *, busy: bool) -> HostStages:
    """What a host does; arguments as `server_stages`."""
    asked, ahead, exchanges = [], [], []
    for step in _steps(charges, "receive"):
        special = [place for place, charge in enumerate(step) if charge.phase not in phases]
        sent = [place for place, charge in enumerate(step) if charge.phase == "send"]
        if special:
            exchanges.append([step[place]._replace(phase="") for place in special])
        elif sent:
            asked.append(step[: sent[-1] + 1])
        ahead.append(step[max(special + sent, default=len(step)) + 1 :])
    exchange = _medians(exchanges, busy=True).get("", 0.0)
    return HostStages(_medians(asked, busy=busy), _medians(ahead, busy=busy), exchange)


def _plain_steps(charges: Iterable[Charge], phases: Sequence[str]) -> list[list[Charge]]:
    steps = _steps(charges, phases[0])
    return [step for step in steps if all(charge.phase in phases for charge in step)]


def _steps(charges: Iterable[Charge], first: str) -> list[list[Charge]]:
    """Charges by step, without those of warming up and the last, which may be cut off."""
    steps: list[list[Charge]] = [[]]
    for charge in charges:
        if charge.phase == first and steps[-1][-1:] and steps[-1][-1].phase != first:
            steps.append([])
        steps[-1].append(charge)
    return steps[1 + WARM_UP : -1]


def _medians(steps: Sequence[Sequence[Charge]], *, busy: bool) -> Seconds:
    """The usual sums over a step, each among the steps that have the phase."""

    def seconds(charge: Charge) -> float:
        # What waits is no work of this role.
        return charge.busy_seconds if busy or charge.phase in MESSAGES else charge.seconds

    return {
        phase: median(
            sum(map(seconds, those))
            for step in steps
            if (those := [charge for charge in step if charge.phase == phase])
        )
        for phase in dict.fromkeys(charge.phase for charge in chain(*steps))
    }
