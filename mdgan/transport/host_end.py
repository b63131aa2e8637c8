"""A host's end over every transport: what has come, and parcels for other hosts."""

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
    """A host's end.

    Args:
        swap_seconds: how long this host waits for what another one hands over.
    """

    def __init__(self, host: int, swap_seconds: float) -> None:
        self.traffic = base.Traffic()
        # The hosts that kept this one waiting for most of that time in the last exchange, or for
        # all of it.
        self.slow_givers: set[int] = set()
        self._swap_seconds = swap_seconds
        # What to add to this machine's monotonic clock to get the server's.
        self.clock_offset_seconds = 0.0
        # Of this machine, where the server and other hosts can reach it besides.
        self.own_address = base.LOOPBACK
        self.welcome: Mapping[str, Any] = {}  # what the server told when it let this host in
        self.server = "in this process"  # where the server is, in words
        self.host = host
        self.is_over = False  # whether nothing goes either way any more
        self._inbox: Inbox[base.HostEvent] = Inbox()

    def send(self, message: Message) -> int:
        """Sends to the server without waiting for arrival; returns the bytes, 0 if it is gone."""
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
        """Lays out at most one message for each of some hosts and fetches one from each of others.

        Every host concerned calls it for the same iteration. What is laid out is a copy, so that
        no host waits for another to fetch it, and a host's death affects only its partner.

        Args:
            outgoing: by receiving host; nothing is laid out for one that has no ticket.
            addresses: where to fetch, for every host in `incoming`, as its hello said.

        Returns:
            For every host in `incoming`, its message, or `Lost` if it did not come in time.
        """
        self.slow_givers = set()
        gives = tickets.gives
        frames = {taker: encode(own) for taker, own in outgoing.items() if taker in gives}
        self._lay_out(iteration, frames, gives)
        for frame in frames.values():
            self.traffic.sent[frame.kind] += len(frame.body)
        if not incoming:
            return {}
        fetch = partial(self._try, iteration, addresses, tickets.takes)
        with ThreadPoolExecutor(len(incoming), "fetch") as pool:
            found = dict(zip(incoming, pool.map(fetch, incoming), strict=True))
        arrived: dict[int, Message | base.Lost] = {}
        for giver, given in found.items():
            if isinstance(given, base.Received):
                self.traffic.received[str(given.message.kind)] += given.num_bytes
            arrived[giver] = given.message if isinstance(given, base.Received) else given
        return arrived

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`; may be called from a signal handler."""
        self._inbox.put(base.Asked())

    @abstractmethod
    def close(self) -> None:
        """Says goodbye to the server and frees everything."""

    def take_in(self, frame: Frame) -> None:
        """The server has sent something.

        Raises:
            WireError: it is no message.
        """
        self._inbox.put(base.Received(base.SERVER, decode(frame), len(frame.body)))

    def lose_server(self, reason: str) -> None:
        """Nothing goes either way any more."""
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
        """Sends to the server without waiting; False if it is gone."""

    @abstractmethod
    def _lay_out(
        self, iteration: int, frames: Mapping[int, Frame], tickets: Mapping[int, str]
    ) -> None:
        """Lays out a parcel for each of some hosts, which fetch them with their tickets."""

    @abstractmethod
    def _fetch(self, giver: int, iteration: int, address: Any, ticket: str) -> Frame:
        """Fetches what a host has laid out for this one."""
