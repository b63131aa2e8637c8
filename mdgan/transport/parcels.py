"""Messages between hosts: a giver lays a parcel out, and its taker fetches it with a ticket."""

import hmac
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mdgan.transport.frames import MOST_BYTES, Frame, WireError

KEPT_EXCHANGES = 2  # of how many exchanges, counted from the newest, a giver's parcels are kept


class NothingThere(RuntimeError):
    """There is no parcel for a taker; the text is the reason, in one line."""


@dataclass
class _Laid:
    """The tickets and parcels of one giver for one exchange, by taker."""

    tickets: dict[int, str]
    frames: dict[int, Frame] = field(default_factory=dict)
    is_whole: bool = False

    def admits(self, taker: int, ticket: str) -> bool:
        expected = self.tickets.get(taker, "")
        return bool(expected) and hmac.compare_digest(expected.encode(), ticket.encode())


class Parcels:
    """Keeps the parcels that the server's exchanges call for; any thread may call it.

    Args:
        seconds: how long a taker waits for its giver.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._changed = threading.Condition()  # guards everything below
        self._laid: dict[int, dict[int, _Laid]] = {}  # giver → iteration, the newest last
        self._left_at: dict[int, float] = {}  # giver → when it left, by the monotonic clock

    def expect(self, giver: int, iteration: int, tickets: Mapping[int, str]) -> None:
        """Expects a giver to lay out a parcel for each taker that has a ticket.

        Drops parcels of this giver's older exchanges, and those of givers that left long ago.
        """
        with self._changed:
            self._left_at.pop(giver, None)
            for absentee, left_at in self._left_at.items():
                if time.monotonic() - left_at > self._seconds:
                    self._laid.pop(absentee, None)
            by_iteration = self._laid.setdefault(giver, {})
            by_iteration.pop(iteration, None)
            by_iteration[iteration] = _Laid(dict(tickets))
            self._keep_newest(giver, KEPT_EXCHANGES)

    def put(self, giver: int, taker: int, frame: Frame, most_bytes: int = MOST_BYTES) -> None:
        """Lays out one parcel, or drops it if it is of an exchange that was forgotten.

        Raises:
            WireError: no exchange needs it, or the giver's parcels together exceed `most_bytes`.
        """
        with self._changed:
            by_iteration = self._laid.get(giver, {})
            laid = by_iteration.get(frame.iteration)
            if laid is None and frame.iteration < min(by_iteration, default=0):
                return
            if laid is None or laid.is_whole or taker in laid.frames or taker not in laid.tickets:
                raise WireError(f"it lays out a parcel for host {taker} that no exchange needs")
            laid.frames[taker] = frame
            if sum(len(parcel.body) for parcel in laid.frames.values()) > most_bytes:
                raise WireError("it lays out more than it can have")

    def laid_out(self, giver: int, iteration: int) -> None:
        """Notes that a giver has laid out all its parcels for an exchange."""
        with self._changed:
            if laid := self._laid.get(giver, {}).get(iteration):
                laid.is_whole = True
                self._changed.notify_all()

    def wait_for(self, giver: int, iteration: int, taker: int, ticket: str) -> Frame:
        """Waits until a giver has laid out all its parcels of an iteration; returns the taker's.

        Raises:
            NothingThere: no parcel belongs to this ticket, or it was not laid out in time.
        """

        def is_decided() -> bool:
            by_iteration = self._laid.get(giver, {})
            laid = by_iteration.get(iteration)
            if laid is not None and (laid.is_whole or not laid.admits(taker, ticket)):
                return True
            later = [other for i, other in by_iteration.items() if i > iteration]
            return giver in self._left_at or any(other.is_whole for other in later)

        with self._changed:
            in_time = self._changed.wait_for(is_decided, self._seconds)
            laid = self._laid.get(giver, {}).get(iteration)
            if laid is not None and not laid.admits(taker, ticket):
                raise NothingThere("it has no parcel for this ticket")
            frame = None if laid is None else laid.frames.get(taker)
            if frame is None and giver in self._left_at:
                raise NothingThere("its connection closed")
        if frame is None:
            reason = "it has nothing for this host" if in_time else "it did not answer in time"
            raise NothingThere(reason)
        return frame

    def fetched(self, giver: int, iteration: int, taker: int) -> None:
        """Drops a parcel that its taker has received, and the ticket for it."""
        with self._changed:
            if laid := self._laid.get(giver, {}).get(iteration):
                laid.frames.pop(taker, None)
                laid.tickets.pop(taker, None)
                self._changed.notify_all()

    def leave(self, giver: int, timeout_seconds: float = 0.0) -> None:
        """Lets a giver leave: waits up to a limit until takers have fetched its newest parcels."""

        def all_fetched() -> bool:
            newest = [*self._laid.get(giver, {}).values()][-1:]
            return not any(laid.frames for laid in newest)

        with self._changed:
            self._changed.wait_for(all_fetched, timeout_seconds)
            self._left_at[giver] = time.monotonic()
            self._keep_newest(giver, 1)
            self._changed.notify_all()

    def _keep_newest(self, giver: int, count: int) -> None:
        by_iteration = self._laid.get(giver, {})
        for iteration in [*by_iteration][:-count]:
            del by_iteration[iteration]
