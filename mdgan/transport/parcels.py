"""What hosts hand to each other: laid out for one of them, fetched by it."""

import threading
from collections import deque
from collections.abc import Mapping

from mdgan.transport.frames import Frame

KEPT_EXCHANGES = 2
"""What was laid out is dropped after this many further exchanges."""


class NothingThere(RuntimeError):
    """There is no parcel; the text says in one line why."""


class Parcels:
    """What some hosts have laid out. Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards everything below
        self._laid_out: dict[int, deque[int]] = {}
        self._frames: dict[tuple[int, int, int], Frame] = {}
        self._gone: set[int] = set()

    def lay_out(self, giver: int, iteration: int, frames: Mapping[int, Frame]) -> None:
        """Lays out a parcel for each taker; a giver's of the exchange before last are gone."""
        with self._changed:
            self._gone.discard(giver)
            known = self._laid_out.setdefault(giver, deque(maxlen=KEPT_EXCHANGES))
            if iteration not in known:
                known.append(iteration)
            for of in [of for of in self._frames if of[0] == giver and of[1] not in known]:
                del self._frames[of]
            for taker, frame in frames.items():
                self._frames[giver, iteration, taker] = frame
            self._changed.notify_all()

    def wait_for(self, giver: int, iteration: int, taker: int, timeout_seconds: float) -> Frame:
        """A parcel, as soon as its giver has laid out those of that iteration.

        Raises:
            NothingThere: there is none for this host, or it did not come in time.
        """

        def is_decided() -> bool:
            known = self._laid_out.get(giver, ())
            newest = known[-1] if known else iteration
            return giver in self._gone or iteration in known or iteration < newest

        with self._changed:
            in_time = self._changed.wait_for(is_decided, timeout_seconds)
            frame = self._frames.get((giver, iteration, taker))
            if frame is None and giver in self._gone:
                raise NothingThere("its connection closed")
        if frame is None:
            reason = "it has nothing for this host" if in_time else "it did not answer in time"
            raise NothingThere(reason)
        return frame

    def fetched(self, giver: int, iteration: int, taker: int) -> None:
        """A parcel has arrived; it is not needed any more."""
        with self._changed:
            self._frames.pop((giver, iteration, taker), None)
            self._changed.notify_all()

    def leave(self, giver: int, timeout_seconds: float = 0.0) -> None:
        """Waits a moment until a giver's newest parcels are fetched; it lays out no more."""

        def all_fetched() -> bool:
            known = self._laid_out.get(giver)
            return not any(known and of[:2] == (giver, known[-1]) for of in self._frames)

        with self._changed:
            self._changed.wait_for(all_fetched, timeout_seconds)
            self._gone.add(giver)
            self._changed.notify_all()
