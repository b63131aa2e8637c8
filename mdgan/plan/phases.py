"""How long a role is in each phase of a step, by when its tracer's spans begin.

Seconds are charged by the clock, and as computed on all cores. Where processes share cores, only
the latter say what a phase costs; what a phase gains by threads, only the former.
"""

import contextlib
import signal
import time
from collections.abc import Iterable
from itertools import chain
from multiprocessing.synchronize import Semaphore
from statistics import fmean, median
from typing import NamedTuple

import psutil

MESSAGES = ("wait", "receive", "send")
"""Where the server reads answers, a host reads questions, and both write; and where they wait."""
_IDLE = ("wait", "receive", "checkpoint")
"""Where a role needs no turn, since it may wait for another one."""
_WARM_UP = 2

Seconds = dict[str, float]  # in a usual step, by phase


class PhaseCharge(NamedTuple):
    """One stay in a phase: seconds by the clock, and those computed on all cores together."""

    phase: str
    seconds: float
    busy_seconds: float


class PhaseClock:
    """What a tracer calls when a span begins; charges the phase before.

    Args:
        turn: held while a role computes, so that it has all cores; None if all may compute at once.
        stop_after: the least steps and seconds after which the server asks itself to stop; None
            for a host.

    Attributes:
        forked_bytes: the most memory that one process of those has of its own which a host had
            forked when it first answered.
    """

    def __init__(self, turn: Semaphore | None, stop_after: tuple[int, float] | None) -> None:
        self.charges: list[PhaseCharge] = []
        self.forked_bytes = 0
        self._turn = turn
        self._holds_turn = False
        self._stop_after = stop_after
        self._steps = 0
        self._end = 0.0
        self._phase = ""
        self._since = self._busy_since = 0.0

    def __call__(self, phase: str, _iteration: int) -> None:
        seconds, busy = time.perf_counter() - self._since, time.process_time() - self._busy_since
        if self._phase:
            self.charges.append(PhaseCharge(self._phase, seconds, busy))
        self._phase = phase.replace(" ", "-")
        if self._turn is not None:
            computes = self._phase not in _IDLE
            if computes and not self._holds_turn:
                self._turn.acquire()
            elif self._holds_turn and not computes:
                self._turn.release()
            self._holds_turn = computes
        if self._stop_after is not None and self._phase == "wait":
            self._count_step(*self._stop_after)
        elif self._stop_after is None and self._phase == "send" and not self._steps:
            self._steps = 1
            self.forked_bytes = _bytes_of_forks()
        self._since, self._busy_since = time.perf_counter(), time.process_time()

    def _count_step(self, least: int, seconds: float) -> None:
        self._steps += 1
        if self._steps == _WARM_UP:
            self._end = time.monotonic() + seconds
        if self._steps > _WARM_UP + least and time.monotonic() > self._end:
            signal.raise_signal(signal.SIGTERM)


def _bytes_of_forks() -> int:
    sizes = [0]
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ends at this moment
            sizes.append(int(each.memory_full_info().uss))
    return max(sizes)


def per_worker(charges: Iterable[PhaseCharge], num_workers: int) -> list[PhaseCharge]:
    """A host's charges shared out to its workers; messages are the host's."""
    return [
        c if c.phase in MESSAGES else PhaseCharge(c.phase, *(s / num_workers for s in c[1:]))
        for c in charges
    ]


class HostStages(NamedTuple):
    """What a host does in a usual step: until its answer, and ahead of a question."""

    asked: Seconds
    ahead: Seconds


def host_stages(hosts: Iterable[Iterable[PhaseCharge]], *, busy: bool) -> HostStages:
    """What hosts do that do the same, from the charges of each; see `stages`."""
    marked: list[list[PhaseCharge]] = []
    for charges in hosts:
        marked.append([])
        answered = False
        for charge in charges:
            answered = answered and charge.phase != "receive"
            mark = "ahead" if answered else "asked"
            marked[-1].append(charge._replace(phase=f"{mark} {charge.phase}"))
            answered = answered or charge.phase == "send"
    seconds = stages(marked, "asked receive", busy=busy)
    return HostStages(
        *(
            {name.removeprefix(mark): s for name, s in seconds.items() if name.startswith(mark)}
            for mark in ("asked ", "ahead ")
        )
    )


def stages(roles: Iterable[Iterable[PhaseCharge]], first: str, *, busy: bool) -> Seconds:
    """What roles do in a usual step, from their charges: busy seconds, or by the clock."""
    sums: dict[str, list[float]] = {}
    for step in (step for charges in roles for step in _steps(charges, first)):
        for phase in dict.fromkeys(charge.phase for charge in step):
            computed = busy or phase.split()[-1] in MESSAGES
            those = (c.busy_seconds if computed else c.seconds for c in step if c.phase == phase)
            sums.setdefault(phase, []).append(sum(those))
    return {phase: median(seconds) for phase, seconds in sums.items()}


def step_seconds(charges: Iterable[PhaseCharge], first: str, times: int = 1) -> float:
    """What a step takes on average by the clock, hiccups too; it comes so many `times`."""
    return fmean(sum(charge.seconds for charge in step) for step in _steps(charges, first, times))


def _steps(charges: Iterable[PhaseCharge], first: str, times: int = 1) -> list[list[PhaseCharge]]:
    """Charges by step, without those of warming up and the last, which may be cut off."""
    parts: list[list[PhaseCharge]] = [[]]
    before = ""
    for charge in charges:
        if charge.phase == first != before:
            parts.append([])
        parts[-1].append(charge)
        before = charge.phase
    usual = parts[1 + _WARM_UP * times : -1]
    ends = range(times, len(usual) + 1, times)
    return [list(chain(*usual[end - times : end])) for end in ends]
