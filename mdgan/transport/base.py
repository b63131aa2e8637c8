"""The contract between the server, the hosts, and the transport that carries their messages.

A lost peer is a value, not an exception: `receive` yields `Lost`, and a `send` to a peer that is
gone does nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mdgan.messages import Message


class Traffic:
    """Bytes that one end has moved, by kind of message; used by one thread only.

    What sets a link up and ends it is not counted, nor what keeps it alive.

    Attributes:
        sent: bytes sent so far, by the name of the kind.
        received: bytes received so far, by the name of the kind.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def count_sent(self, kind: str, num_bytes: int) -> int:
        """Counts a message that leaves; returns its bytes."""
        self.sent[str(kind)] += num_bytes
        return num_bytes

    def count_received(self, kind: str, num_bytes: int) -> int:
        """Counts a message that was taken in; returns its bytes."""
        self.received[str(kind)] += num_bytes
        return num_bytes


Admit = Callable[[Mapping[str, Any]], Mapping[str, Any] | str]
"""Takes a host's hello; returns the welcome for it, or the reason why it may not join."""

SERVER = 0
"""The server's number as a peer. Hosts are numbered by their first worker."""

RELAY = "server"
"""Where parcels are fetched of a host that other hosts cannot reach."""


@dataclass(frozen=True)
class Received:
    """A message arrived.

    Attributes:
        sender: the host's number, or `SERVER`.
        message: what it sent.
        num_bytes: what it took on the way.
    """

    sender: int
    message: Message
    num_bytes: int


@dataclass(frozen=True)
class Joined:
    """A host was admitted and its link is open.

    If the same host was linked before, that link is gone and no `Lost` follows for it.

    Attributes:
        host: its number.
        hello: what it said of itself.
    """

    host: int
    hello: Mapping[str, Any]


@dataclass(frozen=True)
class Lost:
    """A peer is gone.

    Attributes:
        peer: the host's number, or `SERVER`.
        reason: one line.
    """

    peer: int
    reason: str


@dataclass(frozen=True)
class Refused:
    """A host that wanted to join was not admitted.

    Attributes:
        reason: one line.
    """

    reason: str


@dataclass(frozen=True)
class Asked:
    """This process was asked to stop (`interrupt`)."""


ServerEvent = Received | Joined | Lost | Refused | Asked
HostEvent = Received | Lost | Asked


class ServerTransport(Protocol):
    """The server's end.

    Attributes:
        traffic: bytes moved so far.
    """

    traffic: Traffic

    def send(self, host: int, message: Message) -> int:
        """Sends without waiting for arrival; the tensors are copied before it returns.

        Returns:
            The bytes it takes; 0 if the host is gone.
        """

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""

    def drop(self, host: int) -> None:
        """Ends the link to a host that is no longer needed; no `Lost` follows."""

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`; may be called from a signal handler."""

    def close(self) -> None:
        """Says goodbye to every host and frees everything."""


class HostTransport(Protocol):
    """A host's end.

    Attributes:
        traffic: bytes moved so far.
        clock_offset_seconds: what to add to this machine's monotonic clock to get the server's.
        welcome: what the server told when it let this host in.
    """

    traffic: Traffic
    clock_offset_seconds: float
    welcome: Mapping[str, Any]

    def send(self, message: Message) -> int:
        """Sends to the server without waiting for arrival.

        Returns:
            The bytes it takes; 0 if the server is gone.
        """

    def receive(self, timeout_seconds: float) -> HostEvent | None:
        """The next event from the server, or None when the time is up."""

    def exchange(
        self,
        iteration: int,
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
        addresses: Mapping[int, Any],
    ) -> Mapping[int, Message | Lost]:
        """Lays out at most one message for each of some hosts and fetches one from each of others.

        Every host concerned calls it for the same iteration. What is laid out is a copy, so that
        no host waits for another to fetch it, and a host's death affects only its partner.

        Args:
            iteration: the same at every host concerned.
            outgoing: by receiving host.
            incoming: the hosts that have a message for this host.
            addresses: where to fetch, for every host in `incoming`, as its hello said.

        Returns:
            For every host in `incoming`, its message, or `Lost` if it did not come in time.
        """

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`; may be called from a signal handler."""

    def close(self) -> None:
        """Says goodbye to the server and frees everything."""
