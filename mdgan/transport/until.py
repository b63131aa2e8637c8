"""Waits with a time limit, for a moment to pass or for an event from another thread."""

import math
import queue
import threading
import time
from typing import Generic, TypeVar

from mdgan.errors import Interrupted

_LOOK_SECONDS = 0.1


Event = TypeVar("Event")


class Until:
    """A deadline. A thread waits for it in short slices, so that an interruption ends the wait.

    Args:
        seconds: from now; may be infinite.
        interrupted: a signal handler or another thread sets it to end the wait.
    """

    def __init__(self, seconds: float, interrupted: threading.Event | None = None) -> None:
        self._deadline = time.monotonic() + seconds
        self._interrupted = interrupted

    def left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def slice(self) -> float:
        """How long to wait before looking again, above 0 and at most 0.1 s.

        Raises:
            TimeoutError: the deadline has passed.
            Interrupted: `interrupted` is set.
        """
        if self._interrupted is not None and self._interrupted.is_set():
            raise Interrupted
        seconds_left = self.left()
        if seconds_left <= 0:
            raise TimeoutError("it did not answer in time")
        return max(0.001, min(seconds_left, _LOOK_SECONDS))

    def take(self, inbox: "Inbox[Event | Exception]") -> "Event":
        """Returns the next event of an inbox, or raises it if it is an error; see `slice`."""
        while (event := inbox.take(self.slice())) is None:
            pass
        if isinstance(event, Exception):
            raise event
        return event

    def pause(self, seconds: float) -> None:
        """Waits, but not beyond the deadline; raises Interrupted as `slice` does."""
        seconds = min(seconds, self.left())
        if self._interrupted is None:
            time.sleep(seconds)
        elif self._interrupted.wait(seconds):
            raise Interrupted

    def shorter(self, seconds: float) -> "Until":
        """A copy whose deadline is at most this many seconds from now."""
        return Until(min(seconds, self.left()), self._interrupted)

    def endless(self) -> "Until":
        """A copy without a deadline: only an interruption ends the wait."""
        return Until(math.inf, self._interrupted)


class Inbox(Generic[Event]):
    """Events from any thread, in order; `put` may be called from a signal handler."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        """Adds an event."""
        self._queue.put(event)

    def take(self, timeout_seconds: float) -> Event | None:
        """The next event, or None when the time is up."""
        try:
            return self._queue.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
