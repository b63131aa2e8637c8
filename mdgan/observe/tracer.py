"""Records what a role did when: spans of time, and the bytes that moved in them.

Hosts record windows of `WINDOW` iterations in a row, in long runs only some windows, so that traces
stay within some tens of megabytes. All rounds are recorded.
"""

import threading
import time
from collections.abc import Callable
from math import ceil
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from mdgan.observe.profiler import Profiler

WINDOW = 10
"""Iterations in a row that are recorded, so that reports can draw a timeline of ten."""

MOST_SPANS = 10_000
"""The most spans that a role keeps until `take`; further ones are not recorded."""

_MOST_WORKER_ITERATIONS = 200_000
_PASS_ON_SECONDS = 1.0

OnPhase = Callable[[str, int], None]
"""Called when a role enters a phase, with the name of the phase and the iteration."""


def traced_every(iterations: int, num_workers: int) -> int:
    """Of how many windows a host records one, so that long runs have traces of bounded size."""
    return max(1, ceil(iterations * num_workers / _MOST_WORKER_ITERATIONS))


def memory_bytes() -> int:
    """The memory of this process; 0 in other threads than the main one, or if it is unknown."""
    if threading.current_thread() is not threading.main_thread():
        return 0
    try:
        return int(psutil.Process().memory_info().rss)
    except (OSError, psutil.Error):
        return 0


class Span:
    """A time in which a role does one thing; a context manager that measures it."""

    __slots__ = ("_tracer", "end", "iteration", "name", "num_bytes", "start", "worker")

    def __init__(self, tracer: "Tracer", name: str, worker: int) -> None:
        self._tracer = tracer
        self.iteration = 0
        self.name = name
        self.worker = worker
        self.num_bytes = 0

    def __enter__(self) -> "Span":
        self._tracer.reach(self.name)
        if self._tracer.profiler is not None:
            self._tracer.profiler.enter(self.name, self._tracer.iteration)
        self.start = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end = time.monotonic()
        if self._tracer.profiler is not None:
            self._tracer.profiler.leave(self.name)
        self._tracer.add(self)


class Tracer:
    """Collects the spans of one role.

    Args:
        every: one window in this many is recorded; see `traced_every`. 0: none is.
        on_phase: called at the beginning of every span, and by `reach`.

    Attributes:
        clock_offset_seconds: what to add to this machine's clock to get the server's.
    """

    def __init__(
        self, every: int = 1, on_phase: OnPhase | None = None, profiler: "Profiler | None" = None
    ) -> None:
        self.iteration = 0
        self.profiler = profiler
        self.clock_offset_seconds = 0.0
        self._every = every
        self._on_phase = on_phase
        self._spans: list[Span] = []
        self._taken_at = time.monotonic()

    @property
    def records(self) -> bool:
        """Whether anything is recorded."""
        return self._every > 0

    def due(self) -> bool:
        """Whether it is time to `take` the spans, which is about once a second."""
        return time.monotonic() - self._taken_at >= _PASS_ON_SECONDS

    def span(self, name: str) -> Span:
        """Makes a span; enter it by `with`."""
        return Span(self, name, 0)

    def of_worker(self, worker: int) -> Callable[[str], Span]:
        """Returns a function like `span`, whose spans are of one worker."""
        return lambda name: Span(self, name, worker)

    def reach(self, phase: str, iteration: int | None = None) -> None:
        """Reports a phase to `on_phase`; used alone for phases without a span, such as writing."""
        if self._on_phase is not None:
            self._on_phase(phase, self.iteration if iteration is None else iteration)

    def add(self, span: Span) -> None:
        """Keeps an ended span, if its iteration is recorded and there is room."""
        if not self._every or len(self._spans) >= MOST_SPANS:
            return
        if (self.iteration - 1) // WINDOW % self._every == 0 or self.iteration < 1:
            span.iteration = self.iteration
            self._spans.append(span)

    def profile(self, *, at_end: bool = False) -> dict[str, Any] | None:
        """The profile of the role's process, once it is complete; see `Profiler.tell`."""
        return None if self.profiler is None else self.profiler.tell(at_end=at_end)

    def take(self) -> list[dict[str, Any]]:
        """Returns the spans since the last call, as rows for `trace/<role>.jsonl`.

        Each row is of one iteration: `iteration`, `start` (seconds by the server's clock) and
        `spans`, each [name, worker, microseconds after start, microseconds long, bytes].
        """
        spans, self._spans = self._spans, []
        self._taken_at = time.monotonic()
        rows: list[dict[str, Any]] = []
        for span in spans:
            if not rows or rows[-1]["iteration"] != span.iteration:
                start = round(span.start + self.clock_offset_seconds, 6)
                rows.append({"iteration": span.iteration, "start": start, "spans": []})
                first = span.start
            after = round(1e6 * (span.start - first))
            duration = round(1e6 * (span.end - span.start))
            rows[-1]["spans"].append([span.name, span.worker, after, duration, span.num_bytes])
        return rows
