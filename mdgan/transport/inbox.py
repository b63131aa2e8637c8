"""The queue behind every end of a transport."""

import queue
from typing import Generic, TypeVar

Event = TypeVar("Event")


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
