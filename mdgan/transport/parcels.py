"""What hosts hand to each other: laid out for one of them, fetched by it with a ticket."""

import hmac
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mdgan.transport.frames import MOST_BYTES, Frame, WireError

KEPT_EXCHANGES = 2  # what was laid out is dropped after this many further exchanges


class NothingThere(RuntimeError):
    """There is no parcel; the text says in one line why."""


@dataclass
class _Laid:
    """What one giver has for one exchange, by taker."""

    tickets: dict[int, str]
    frames: dict[int, Frame] = field(default_factory=dict)
    is_whole: bool = False

    def admits(self, taker: int, ticket: str) -> bool:
        known = self.tickets.get(taker, "")
        return bool(known) and hmac.compare_digest(known.encode(), ticket.encode())


class Parcels:
    """What some hosts have laid out, as far as an exchange was ordered. Any thread may call.

    Args:
        seconds: how long a taker waits for its giver.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._changed = threading.Condition()  # guards everything below
        self._laid: dict[int, dict[int, _Laid]] = {}  # giver → iteration, the newest last
        self._gone: dict[int, float] = {}  # giver → since when

    def expect(self, giver: int, iteration: int, tickets: Mapping[int, str]) -> None:
        """A giver is to lay out a parcel for each taker that has a ticket.

        A giver's of the exchange before last are gone, and those of givers that went long ago.
        """
        with self._changed:
            self._gone.pop(giver, None)
            for gone, since in self._gone.items():
                if time.monotonic() - since > self._seconds:
                    self._laid.pop(gone, None)
            laid = self._laid.setdefault(giver, {})
            laid.pop(iteration, None)
            laid[iteration] = _Laid(dict(tickets))
            self._keep_newest(giver, KEPT_EXCHANGES)

    def put(self, giver: int, taker: int, frame: Frame, most_bytes: int = MOST_BYTES) -> None:
        """Lays out one parcel; what comes after its exchange was forgotten is dropped.

        Raises:
            WireError: no exchange needs it, or the giver has more than `most_bytes` for this one.
        """
        with self._changed:
            laid = self._laid.get(giver, {})
            own = laid.get(frame.iteration)
            if own is None and frame.iteration < min(laid, default=0):
                return
            if own is None or own.is_whole or taker in own.frames or taker not in own.tickets:
                raise WireError(f"it lays out for host {taker} what no exchange needs")
            own.frames[taker] = frame
            if sum(len(parcel.body) for parcel in own.frames.values()) > most_bytes:
                raise WireError("it lays out more than it can have")

    def laid_out(self, giver: int, iteration: int) -> None:
        """A giver has laid out all that it has for an exchange."""
        with self._changed:
            if own := self._laid.get(giver, {}).get(iteration):
                own.is_whole = True
                self._changed.notify_all()

    def wait_for(self, giver: int, iteration: int, taker: int, ticket: str) -> Frame:
        """A parcel, as soon as its giver has laid out all those of that iteration.

        Raises:
            NothingThere: there is none for this ticket, or it did not come in time.
        """

        def is_decided() -> bool:
            laid = self._laid.get(giver, {})
            own = laid.get(iteration)
            if own is not None and (own.is_whole or not own.admits(taker, ticket)):
                return True
            later = any(other.is_whole for i, other in laid.items() if i > iteration)
            return giver in self._gone or later

        with self._changed:
            in_time = self._changed.wait_for(is_decided, self._seconds)
            own = self._laid.get(giver, {}).get(iteration)
            if own is not None and not own.admits(taker, ticket):
                raise NothingThere("this ticket is for nothing that it has")
            frame = None if own is None else own.frames.get(taker)
            if frame is None and giver in self._gone:
                raise NothingThere("its connection closed")
        if frame is None:
            reason = "it has nothing for this host" if in_time else "it did not answer in time"
            raise NothingThere(reason)
        return frame

    def fetched(self, giver: int, iteration: int, taker: int) -> None:
        """A parcel has arrived; neither it nor its ticket is needed any more."""
        with self._changed:
            if own := self._laid.get(giver, {}).get(iteration):
                own.frames.pop(taker, None)
                own.tickets.pop(taker, None)
                self._changed.notify_all()

    def leave(self, giver: int, timeout_seconds: float = 0.0) -> None:
        """Waits a moment until a giver's newest parcels are fetched; it lays out no more."""

        def all_fetched() -> bool:
            return not any(own.frames for own in [*self._laid.get(giver, {}).values()][-1:])

        with self._changed:
            self._changed.wait_for(all_fetched, timeout_seconds)
            self._gone[giver] = time.monotonic()
            self._keep_newest(giver, 1)
            self._changed.notify_all()

    def _keep_newest(self, giver: int, count: int) -> None:
        laid = self._laid.get(giver, {})
        for iteration in [*laid][:-count]:
            del laid[iteration]
