"""The events that the server and the hosts receive from every transport.

A lost peer is a value, not an exception: `receive` returns `Lost`, and `send` to a lost peer sends
nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mdgan.messages import Message


class Traffic:
    """Counts the bytes that one end sends and receives, by kind of message; for one thread only.

    Messages that open, close or keep alive a link are not counted.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()


Admit = Callable[[Mapping[str, Any]], Mapping[str, Any] | str]
"""Takes a host's hello; returns the welcome for that host, or the reason why it may not join."""


class Later(str):
    """The reason why a host may not join now, if it may try again later."""


SERVER = 0  # the server's number as a peer. Hosts are numbered by their first worker.

LOOPBACK = "127.0.0.1"  # the address of a machine for its own processes

RELAY = "server"  # the address of a host whose parcels others fetch from the server


class Tickets(NamedTuple):
    """The tickets of one host for one exchange; the server sends them to that host alone."""

    gives: Mapping[int, str]  # by taker, the ticket that the taker shows to this host
    takes: Mapping[int, str]  # by giver, the ticket that this host shows to the giver


@dataclass(frozen=True)
class Received:
    """A message of `num_bytes` bytes arrived; its sender is the number of a host, or `SERVER`."""

    sender: int
    message: Message
    num_bytes: int


@dataclass(frozen=True)
class Joined:
    """The server has admitted a host, and the host's link is open.

    An earlier link of the same host is closed without a `Lost`.
    """

    host: int
    hello: Mapping[str, Any]


@dataclass(frozen=True)
class Lost:
    """The link to a host, or `SERVER`, has ended; `lied`: it sent what no honest peer sends."""

    peer: int
    reason: str
    lied: bool = False


DECLINE = "decline"  # the purpose of a call by which a host gives its ranks back
SLOWED = "slowed"  # the purpose in a log line on a host that sends more than the server reads


class Visitor(NamedTuple):
    """A caller: its purpose, its certificate's fingerprint, its address; empty if not known."""

    purpose: str = "join"
    certificate: str = ""
    address: str = ""


@dataclass(frozen=True)
class Visited:
    """The server has answered a process that does not take part, or has refused it.

    With the purpose `SLOWED`: a host sends more than the server reads.
    """

    told: str
    is_refused: bool
    visitor: Visitor = field(default=Visitor(), compare=False)


@dataclass(frozen=True)
class Asked:
    """This process is to stop: `interrupt` was called, for example by a signal handler."""


ServerEvent = Received | Joined | Lost | Visited | Asked
HostEvent = Received | Lost | Asked
