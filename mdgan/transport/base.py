"""What the server and hosts hear from the transport that carries their messages.

A lost peer is a value, not an exception: `receive` yields `Lost`, and a `send` to a peer that is
gone does nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mdgan.messages import Message


class Traffic:
    """Bytes that one end has moved, by kind of message; used by one thread only.

    What sets a link up and ends it is not counted, nor what keeps it alive.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()


Admit = Callable[[Mapping[str, Any]], Mapping[str, Any] | str]
"""Takes a host's hello; returns the welcome for it, or the reason why it may not join."""


class Later(str):
    """The reason why a host may not join now: it may try again."""


SERVER = 0  # the server's number as a peer. Hosts are numbered by their first worker.

LOOPBACK = "127.0.0.1"  # the address of a machine for its own processes

RELAY = "server"  # where parcels are fetched of a host that other hosts cannot reach


class Tickets(NamedTuple):
    """What a host needs in one exchange, beside addresses; the server tells it to no other host."""

    gives: Mapping[int, str]  # by taker, what that one shows to fetch its parcel
    takes: Mapping[int, str]  # by giver, what this host shows there


@dataclass(frozen=True)
class Received:
    """A message of a host, by its number, or of `SERVER` arrived; it took so many bytes."""

    sender: int
    message: Message
    num_bytes: int


@dataclass(frozen=True)
class Joined:
    """A host was admitted and its link is open.

    If the same host was linked before, that link is gone and no `Lost` follows for it.
    """

    host: int
    hello: Mapping[str, Any]


@dataclass(frozen=True)
class Lost:
    """A host, or `SERVER`, is gone; if it lied, it said what no host of the run would."""

    peer: int
    reason: str
    lied: bool = False


DECLINE = "decline"  # the purpose of a call by which a host gives its ranks back
SLOWED = "slowed"  # for what a host comes into the log that sends more than is read


class Visitor(NamedTuple):
    """What a call was for, the fingerprint of its certificate, its address; empty: not known."""

    purpose: str = "join"
    certificate: str = ""
    address: str = ""


@dataclass(frozen=True)
class Visited:
    """A process that does not take part was told what it asked for, or why it may not come in.

    Or, with the purpose `SLOWED`, a host sends more than is read.
    """

    told: str
    is_refused: bool
    visitor: Visitor = field(default=Visitor(), compare=False)


@dataclass(frozen=True)
class Asked:
    """This process was asked to stop (`interrupt`)."""


ServerEvent = Received | Joined | Lost | Visited | Asked
HostEvent = Received | Lost | Asked
