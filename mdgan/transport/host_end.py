"""A host's end of a link, for every transport: messages with the server, parcels with hosts."""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from mdgan.errors import one_line
from mdgan.messages import Message
from mdgan.transport import base
from mdgan.transport.frames import Frame, WireError, decode, encode
from mdgan.transport.parcels import NothingThere
from mdgan.transport.until import Inbox

_SLOW = 0.5


class HostTransport(ABC):
    """A host's end; each transport subclasses it.

    Args:
        swap_seconds: how long this host waits for another host's parcel.
    """

    def __init__(self, host: int, swap_seconds: float) -> None:
        self.traffic = base.Traffic()
        # Hosts for whose parcels this host waited longer than half of `swap_seconds` in the last
        # exchange.
        self.slow_givers: set[int] = set()
        self._swap_seconds = swap_seconds
        # What to add to this machine's monotonic clock to get the server's.
        self.clock_offset_seconds = 0.0
        # An address of this machine at which the server and other hosts can reach it, too.
        self.own_address = base.LOOPBACK
        self.welcome: Mapping[str, Any] = {}  # the server's answer to this host's hello
        self.server = "in this process"  # where the server is, in words
        self.host = host
        self.is_over = False  # whether the link to the server has ended
        self._inbox: Inbox[base.HostEvent] = Inbox()

    def send(self, message: Message) -> int:
        """Sends to the server without waiting; returns the bytes, or 0 if the link has ended."""
        frame = encode(message)
        if self.is_over or not self._put(frame):
            return 0
        self.traffic.sent[frame.kind] += len(frame.body)
        return len(frame.body)

    def receive(self, timeout_seconds: float) -> base.HostEvent | None:
        """The next event from the server, or None when the time is up."""
        event = self._inbox.take(timeout_seconds)
        if isinstance(event, base.Received):
            self.traffic.received[str(event.message.kind)] += event.num_bytes
        return event

    def exchange(
        self,
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Any],
        tickets: base.Tickets,
    ) -> dict[int, Message | base.Lost]:
        """Lays out one message for each taker, and fetches one from each giver.

        Every giver and taker calls it for the same iteration. A giver lays out a copy, so that it
        waits for no taker, and a host that dies affects only its partners.

        Args:
            outgoing: by taker; a message for a host without a ticket is not laid out.
            incoming: the givers.
            addresses: where each giver hands its parcels out, as its hello said.

        Returns:
            For every giver, its message, or `Lost` if the message did not come in time.
        """
        self.slow_givers = set()
        gives = tickets.gives
        frames = {taker: encode(message) for taker, message in outgoing.items() if taker in gives}
        self._lay_out(iteration, frames, gives)
        for frame in frames.values():
            self.traffic.sent[frame.kind] += len(frame.body)
        if not incoming:
            return {}
        fetch = partial(self._try, iteration, addresses, tickets.takes)
        with ThreadPoolExecutor(len(incoming), "fetch") as pool:
            results = dict(zip(incoming, pool.map(fetch, incoming), strict=True))
        arrived: dict[int, Message | base.Lost] = {}
        for giver, result in results.items():
            if isinstance(result, base.Received):
                self.traffic.received[str(result.message.kind)] += result.num_bytes
            arrived[giver] = result.message if isinstance(result, base.Received) else result
        return arrived

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`; may be called from a signal handler."""
        self._inbox.put(base.Asked())

    @abstractmethod
    def close(self) -> None:
        """Says goodbye to the server and frees everything."""

    def take_in(self, frame: Frame) -> None:
        """Puts a message of the server into the inbox.

        Raises:
            WireError: the frame is no message.
        """
        self._inbox.put(base.Received(base.SERVER, decode(frame), len(frame.body)))

    def lose_server(self, reason: str) -> None:
        """Ends the link: `receive` yields `Lost`, and `send` sends nothing any more."""
        if not self.is_over:
            self.is_over = True
            self._inbox.put(base.Lost(base.SERVER, reason))

    def _try(
        self, iteration: int, addresses: Mapping[int, Any], tickets: Mapping[int, str], giver: int
    ) -> base.Received | base.Lost:
        begin = time.monotonic()
        try:
            address, ticket = addresses.get(giver), tickets.get(giver, "")
            frame = self._fetch(giver, iteration, address, ticket=ticket)
            if frame.iteration != iteration:
                raise WireError(f"it gave what is of iteration {frame.iteration}")
            return base.Received(giver, decode(frame), len(frame.body))
        except (NothingThere, WireError) as error:
            return base.Lost(giver, one_line(error))
        finally:
            if time.monotonic() - begin > _SLOW * self._swap_seconds:
                self.slow_givers.add(giver)

    @abstractmethod
    def _put(self, frame: Frame) -> bool:
        """Sends to the server without waiting; False if the link has ended."""

    @abstractmethod
    def _lay_out(
        self, iteration: int, frames: Mapping[int, Frame], tickets: Mapping[int, str]
    ) -> None:
        """Lays out a parcel for each taker, which fetches it with its ticket."""

    @abstractmethod
    def _fetch(self, giver: int, iteration: int, address: Any, ticket: str) -> Frame:
        """Fetches the parcel that a giver has laid out for this host."""
