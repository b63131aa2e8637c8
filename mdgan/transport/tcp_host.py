"""A host's end over TCP: a link to the server, and parcels for other hosts."""

import contextlib
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mdgan import messages
from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import SERVER, Asked, HostEvent, Lost, Received, Traffic
from mdgan.transport.clock import CLOCK_BYTES, ask_clock
from mdgan.transport.dial import RETRY_SECONDS, Address, Entry, find_server
from mdgan.transport.door import one_line
from mdgan.transport.link import Pulses
from mdgan.transport.parcels import Parcels, fetch
from mdgan.transport.until import Inbox, Until
from mdgan.transport.wire import encode

_BACKLOG = 128


class TcpHostTransport:
    """A host's end; see `HostTransport`.

    Args:
        addresses: where the server may be, most likely first.
        token: the secret that hosts need to join; empty if they need none.
        hello: what the server is told, with the host's number as `host`. Added are `purpose`,
            `liveness`, and `listens`: where this host hands out parcels.
        accepts: what may come from the server, each kind with the most bytes of its body.
        accepts_from_hosts: what may come from another host.
        timeouts: the time limits.
        listen_address: of this machine, for parcels; None for the one that reaches the server.
        interrupted: set to give up joining.
        timeout_seconds: how long to look for the server.

    Raises:
        BadInput: the server refused this host, or no server answered in time.
        Interrupted: asked to stop.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        token: bytes,
        hello: Mapping[str, Any],
        accepts: Mapping[str, int],
        accepts_from_hosts: Mapping[str, int],
        timeouts: Timeouts,
        listen_address: str | None,
        interrupted: threading.Event,
        timeout_seconds: float,
    ) -> None:
        self.traffic = Traffic()
        self._host = int(hello["host"])
        self._from_hosts = accepts_from_hosts
        self._timeouts = timeouts
        self._inbox: Inbox[HostEvent] = Inbox()
        self._listener: socket.socket | None = None

        def complete_hello(connection: socket.socket) -> dict[str, Any]:
            self._listen(listen_address or connection.getsockname()[0])
            assert self._listener is not None
            added = {"purpose": "join", "liveness": timeouts.liveness}
            return {**hello, **added, "listens": [*self._listener.getsockname()[:2]]}

        until = Until(timeout_seconds, interrupted)
        try:
            while True:
                entry = find_server(
                    addresses, token, complete_hello, timeouts, until, timeout_seconds
                )
                if self._take_in(entry, accepts, until):
                    break
                until.pause(RETRY_SECONDS)
        except BaseException:
            if self._listener is not None:
                self._listener.close()
            raise

    def _listen(self, address: str) -> None:
        """Binds a port for parcels; hosts that connect before this one is let in must wait."""
        if self._listener is not None:
            if self._listener.getsockname()[0] == address:
                return
            self._listener.close()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = self._listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((address, 0))
            listener.listen(_BACKLOG)
        except OSError as error:
            raise BadInput(
                f"{address}: cannot listen there for other hosts ({error.strerror}); give an "
                "address of this machine, or its --network-interface"
            ) from error

    def _take_in(self, entry: Entry, accepts: Mapping[str, int], until: Until) -> bool:
        """Sets everything up; False if the server was lost meanwhile."""
        link = entry.link
        try:
            link.expect({**accepts, Kind.CLOCK: CLOCK_BYTES})
            self.clock_offset_seconds = ask_clock(link, until.shorter(self._timeouts.link))
            key = bytes.fromhex(str(entry.welcome.get("peers_key")))
        except (RuntimeError, ValueError):
            link.close()
            return False
        except BaseException:
            link.close()
            raise
        self.welcome: Mapping[str, Any] = {
            name: v for name, v in entry.welcome.items() if name != "peers_key"
        }
        self._link = link
        self._peers_key = key
        self._pulses = Pulses(self._timeouts.liveness)
        self._pulses.add(link, entry.welcome.get("liveness"))
        assert self._listener is not None
        self._parcels = Parcels(self._listener, key, self._timeouts, self._pulses)
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)
        self._reader.start()
        return True

    def send(self, message: Message) -> int:
        """Sends to the server without waiting for arrival; nothing happens if it is gone."""
        with contextlib.suppress(RuntimeError):  # the reader reports the loss
            return self.traffic.count_sent(message.kind, self._link.send(message))
        return 0

    def receive(self, timeout_seconds: float) -> HostEvent | None:
        """The next event from the server, or None when the time is up."""
        event = self._inbox.take(timeout_seconds)
        if isinstance(event, Received):
            self.traffic.count_received(event.message.kind, event.num_bytes)
        return event

    def exchange(
        self,
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Sequence[Any] | None],
    ) -> dict[int, Message | Lost]:
        """Lays out a message for each of some hosts and fetches one from each of others."""
        frames = {taker: encode(message) for taker, message in outgoing.items()}
        self._parcels.lay_out(iteration, frames)
        for taker, message in outgoing.items():
            self.traffic.count_sent(message.kind, sum(map(len, frames[taker])))
        if not incoming:
            return {}
        with ThreadPoolExecutor(len(incoming), "fetch") as pool:
            fetched = pool.map(
                lambda giver: self._fetch(giver, iteration, addresses.get(giver)), incoming
            )
            arrived: dict[int, Message | Lost] = {}
            for giver, result in zip(incoming, fetched, strict=True):
                if isinstance(result, Lost):
                    arrived[giver] = result
                else:
                    message, num_bytes = result
                    arrived[giver] = message
                    self.traffic.count_received(message.kind, num_bytes)
        return arrived

    def _fetch(
        self, giver: int, iteration: int, address: Sequence[Any] | None
    ) -> tuple[Message, int] | Lost:
        key, most, limits = self._peers_key, self._from_hosts, self._timeouts
        try:
            return fetch(address, key, iteration, self._host, most, limits)
        except OSError as error:
            return Lost(giver, error.strerror or one_line(error))
        except (RuntimeError, TypeError, ValueError) as error:
            return Lost(giver, one_line(error))

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self._inbox.put(Asked())

    def close(self) -> None:
        """Says goodbye to the server, waits a moment for its own, and for parcels to be fetched."""
        with contextlib.suppress(RuntimeError):
            self._link.send(messages.bye())
        self._link.end(self._timeouts.farewell)
        self._parcels.close()
        self._reader.join(self._timeouts.farewell)
        self._link.close()
        self._pulses.stop()

    def _read(self) -> None:
        """Feeds the inbox until BYE or the link breaks."""
        reason = "it said goodbye"
        try:
            while True:
                message, num_bytes = self._link.receive()
                if message.kind == Kind.BYE:
                    self._link.send(messages.bye())
                    self._link.end(0)
                    break
                self._inbox.put(Received(SERVER, message, num_bytes))
        except RuntimeError as error:
            reason = one_line(error)
        self._inbox.put(Lost(SERVER, reason))
