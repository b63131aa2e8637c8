"""Records what a role did when: spans of time, and the bytes that moved in them.

Hosts record windows of `WINDOW` iterations in a row, and of a long run not all windows: its traces
stay within some tens of megabytes. Rounds are recorded all.
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
"""Iterations in a row that are recorded, so that a timeline of ten can be drawn of any run."""

MOST_SPANS = 10_000
"""The most spans that a role keeps until they are taken; further ones are not recorded."""

_MOST_WORKER_ITERATIONS = 200_000
_PASS_ON_SECONDS = 1.0

OnPhase = Callable[[str, int], None]
"""Called with the name of a phase and the iteration when a role enters that phase."""


def traced_every(iterations: int, num_workers: int) -> int:
    """Hosts record one window in so many."""
    return max(1, ceil(iterations * num_workers / _MOST_WORKER_ITERATIONS))


def memory_bytes() -> int:
    """Bytes of this process; 0 beside the main thread, or if the system does not tell."""
    if threading.current_thread() is not threading.main_thread():
        return 0
    try:
        return int(psutil.Process().memory_info().rss)
    except (OSError, psutil.Error):
        return 0


class Span:
    """One stretch of time in which a role did one thing; a context manager."""

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
        every: record one window in this many; see `traced_every`. 0 records none.
        on_phase: called at the beginning of every span and by `reach`.

    Attributes:
        clock_offset_seconds: added to the time of this machine's clock, it gives the server's.
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
        self._taken = time.monotonic()

    @property
    def records(self) -> bool:
        """Whether anything is recorded."""
        return self._every > 0

    def due(self) -> bool:
        """Whether what was collected should be passed on: about once a second."""
        return time.monotonic() - self._taken >= _PASS_ON_SECONDS

    def span(self, name: str) -> Span:
        """A span to be entered with `with`."""
        return Span(self, name, 0)

    def of_worker(self, worker: int) -> Callable[[str], Span]:
        """As `span`, for one worker."""
        return lambda name: Span(self, name, worker)

    def reach(self, phase: str, iteration: int | None = None) -> None:
        """Tells `on_phase` of a phase that need not be a span, such as writing."""
        if self._on_phase is not None:
            self._on_phase(phase, self.iteration if iteration is None else iteration)

    def add(self, span: Span) -> None:
        """Keeps a span that has ended, if its iteration is recorded and there is room."""
        if not self._every or len(self._spans) >= MOST_SPANS:
            return
        if (self.iteration - 1) // WINDOW % self._every == 0 or self.iteration < 1:
            span.iteration = self.iteration
            self._spans.append(span)

    def profile(self, *, at_end: bool = False) -> dict[str, Any] | None:
        """The profile of the role's process, once it is there; see `Profiler.tell`."""
        return None if self.profiler is None else self.profiler.tell(at_end=at_end)

    def take(self) -> list[dict[str, Any]]:
        """Hands out what was collected since the last call, as rows for `trace/<role>.jsonl`.

        There is one an iteration: `iteration`, `start` (seconds by the server's clock) and `spans`,
        each [name, worker, microseconds after start, duration in microseconds, bytes].
        """
        spans, self._spans = self._spans, []
        self._taken = time.monotonic()
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
