"""What hosts hand to each other: laid out by one, fetched by another."""

import logging
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from mdgan import messages
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.dial import connect
from mdgan.transport.door import Door, Newcomer, one_line
from mdgan.transport.link import Link, LinkBroken, Pulses
from mdgan.transport.until import Until
from mdgan.transport.wire import Frame

_log = logging.getLogger(__name__)

_REQUEST_BYTES = 4096
KEPT_EXCHANGES = 2
"""What was laid out is dropped after this many further exchanges."""


class Parcels:
    """Hands out what a host has laid out, to hosts that know the key and ask for it.

    Args:
        listener: bound and listening; closed with this.
        key: what hosts that were let in by the same server share.
        timeouts: the time limits.
        pulses: keeps the links of waiting hosts alive.
    """

    def __init__(
        self, listener: socket.socket, key: bytes, timeouts: Timeouts, pulses: Pulses
    ) -> None:
        self._timeouts = timeouts
        self._pulses = pulses
        self._changed = threading.Condition()  # guards everything below
        self._laid_out: deque[int] = deque(maxlen=KEPT_EXCHANGES)
        self._frames: dict[tuple[int, int], Frame] = {}
        self._links: set[Link] = set()
        self._closed = False
        accepts: Mapping[str, int] = {Kind.HELLO: _REQUEST_BYTES}
        self._door = Door(listener, key, accepts, self._hand_out, _complain, timeouts.liveness)

    def lay_out(self, iteration: int, frames: Mapping[int, Frame]) -> None:
        """Lays out a parcel for each of some hosts; those of the exchange before last are gone."""
        with self._changed:
            self._laid_out.append(iteration)
            self._frames = {
                of: frame for of, frame in self._frames.items() if of[0] in self._laid_out
            }
            for taker, frame in frames.items():
                self._frames[iteration, taker] = frame
            self._changed.notify_all()

    def close(self) -> None:
        """Waits a moment until the parcels of the newest exchange are fetched; then ends."""
        with self._changed:
            if not self._closed:
                self._changed.wait_for(self._all_fetched, self._timeouts.farewell)
            self._closed = True
            self._changed.notify_all()
            links = list(self._links)
        self._door.close()
        for link in links:
            link.close()

    def _all_fetched(self) -> bool:
        return not any(iteration == self._laid_out[-1] for iteration, _ in self._frames)

    def _hand_out(self, newcomer: Newcomer) -> None:
        link, fields = newcomer.link, newcomer.first.fields
        taker = fields.get("taker")
        of = (newcomer.first.iteration, taker if isinstance(taker, int) else 0)
        with self._changed:
            self._links.add(link)
        try:
            self._pulses.add(link, fields.get("liveness"))
            frame = self._wait_for(*of)
            if frame is None:
                link.send(messages.refused("it has nothing for this host"))
            else:
                link.send_frame(frame)
            has_left = link.end(self._timeouts.swap)
            link.wait_for_end(Until(self._timeouts.farewell))
            with self._changed:
                if has_left and frame is not None and self._frames.get(of) is frame:
                    del self._frames[of]
                self._changed.notify_all()
        except LinkBroken as error:
            _complain(f"{newcomer.address}: {one_line(error)}")
        finally:
            link.close()
            with self._changed:
                self._links.discard(link)

    def _wait_for(self, iteration: int, taker: int) -> Frame | None:
        """The parcel, as soon as that iteration's are laid out; None if there is none."""

        def is_decided() -> bool:
            known = self._laid_out
            return self._closed or iteration in known or bool(known and iteration < known[-1])

        with self._changed:
            self._changed.wait_for(is_decided, self._timeouts.swap)
            return None if self._closed else self._frames.get((iteration, taker))


def fetch(
    address: Sequence[Any] | None,
    key: bytes,
    iteration: int,
    taker: int,
    expected: Mapping[str, int],
    timeouts: Timeouts,
) -> tuple[Message, int]:
    """Fetches a parcel from the host at an address.

    Args:
        address: name or number, and port.
        key: see `Parcels`.
        iteration: of the exchange.
        taker: the host that the parcel is for.
        expected: the kind that it may have, with the most bytes of its body.
        timeouts: the time limits.

    Returns:
        A message of that kind and the bytes it took.

    Raises:
        OSError, RuntimeError: it did not come.
    """
    if address is None or len(address) != 2:
        raise LinkBroken("its address is unknown")
    until = Until(timeouts.swap)
    accepts = {**expected, Kind.REFUSED: _REQUEST_BYTES}
    connection = connect((str(address[0]), int(address[1])), key, until)
    link = Link(connection, accepts, timeouts.liveness)
    try:
        asked = {"taker": taker, "liveness": timeouts.liveness}
        link.send(Message(Kind.HELLO, iteration, asked))
        message, num_bytes = link.receive(until)
    finally:
        link.close()
    if message.kind == Kind.REFUSED:
        raise LinkBroken(one_line(message.fields.get("reason", "it refused")))
    if message.iteration != iteration:
        raise LinkBroken(f"it gave what is of iteration {message.iteration}")
    return message, num_bytes


def _complain(text: str) -> None:
    _log.warning("turned away a process: %s", text)
