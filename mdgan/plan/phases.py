"""Times the phases of a step of the server or a host; a phase begins with a span of the tracer.

Each phase has seconds by the clock and busy seconds, summed over all cores. Where processes share
cores, only busy seconds say what a phase costs. Only the clock says what a phase gains by threads.
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
"""Phases in which the server or a host waits for messages, reads or writes them."""
_IDLE = ("wait", "receive", "checkpoint")  # a role needs no turn, since it may wait for another
_WARM_UP = 2

Seconds = dict[str, float]  # in a usual step, by phase


class PhaseCharge(NamedTuple):
    """One stay in a phase: seconds by the clock, and busy seconds of all cores together."""

    phase: str
    seconds: float
    busy_seconds: float


class PhaseClock:
    """Charges time to phases; a tracer calls it when a span begins.

    Args:
        turn: the role holds it while it computes, so that it has all cores; None if all roles may
            compute at once.
        stop_after: the least steps and seconds before the server stops the run; None for a host.

    Attributes:
        charges: the finished phases.
        forked_bytes: unshared memory of the largest process that a host had forked when it first
            answered.
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
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # the child has just ended
            sizes.append(int(child.memory_full_info().uss))
    return max(sizes)


def per_worker(charges: Iterable[PhaseCharge], num_workers: int) -> list[PhaseCharge]:
    """A host's charges divided by its workers, except messages: one serves all its workers."""
    return [
        c if c.phase in MESSAGES else PhaseCharge(c.phase, *(s / num_workers for s in c[1:]))
        for c in charges
    ]


class HostStages(NamedTuple):
    """Seconds of a host in a usual step: from a question to its answer, and ahead of the next."""

    asked: Seconds
    ahead: Seconds


def host_stages(hosts: Iterable[Iterable[PhaseCharge]], *, busy: bool) -> HostStages:
    """Seconds of a usual step of equal hosts, from the charges of each; see `stages`."""
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
    """Median seconds of each phase over all steps, which `first` begins; of messages busy ones."""
    sums: dict[str, list[float]] = {}
    for step in (step for charges in roles for step in _steps(charges, first)):
        for phase in dict.fromkeys(charge.phase for charge in step):
            computed = busy or phase.split()[-1] in MESSAGES
            times = (c.busy_seconds if computed else c.seconds for c in step if c.phase == phase)
            sums.setdefault(phase, []).append(sum(times))
    return {phase: median(seconds) for phase, seconds in sums.items()}


def step_seconds(charges: Iterable[PhaseCharge], first: str, times: int = 1) -> float:
    """Mean seconds of a step by the clock, hiccups included; `first` begins `times` in a step."""
    return fmean(sum(charge.seconds for charge in step) for step in _steps(charges, first, times))


def _steps(charges: Iterable[PhaseCharge], first: str, times: int = 1) -> list[list[PhaseCharge]]:
    """Charges by step, without warm-up steps and the last step, which may be cut off."""
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
