"""Everything in one process: hosts are threads, links are queues.

Server and hosts are the same as over TCP; what they send is copied, as a network would.
"""

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import (
    SERVER,
    Admit,
    Asked,
    HostEvent,
    Joined,
    Lost,
    Received,
    Refused,
    ServerEvent,
    Traffic,
)
from mdgan.transport.parcels import KEPT_EXCHANGES
from mdgan.transport.until import Inbox, Until
from mdgan.transport.wire import copied, encoded_bytes


class MemoryNetwork:
    """The switchboard of one process.

    Args:
        timeouts: the time limits.
        admit: called with every hello, in the joining host's thread.

    Attributes:
        server: the server's end.
        changed: notified when parcels are laid out or a host ends.
    """

    def __init__(self, timeouts: Timeouts, admit: Admit) -> None:
        self.timeouts = timeouts
        self.changed = threading.Condition()
        self.hosts: dict[int, MemoryHostTransport] = {}
        self.server = MemoryServerTransport(self)
        self._admit = admit

    def join(self, host: int, hello: Mapping[str, Any]) -> "MemoryHostTransport":
        """Adds a host and tells the server; an earlier link of the same host is gone.

        Raises:
            BadInput: the server refused it.
        """
        welcome = "the server is about to end" if self.server.closed else self._admit(hello)
        if isinstance(welcome, str):
            self.server.inbox.put((Refused(welcome), None))
            raise BadInput(f"the server refused this host: {welcome}")
        with self.changed:
            before = self.hosts.get(host)
            self.hosts[host] = MemoryHostTransport(self, host, welcome)
            self.server.inbox.put((Joined(host, hello), self.hosts[host]))
        if before is not None:
            before.cut("another link of this host took its place")
        return self.hosts[host]


class MemoryServerTransport:
    """The server's end; see `ServerTransport`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.traffic = Traffic()
        self.inbox: Inbox[tuple[ServerEvent, MemoryHostTransport | None]] = Inbox()
        self.closed = False
        self._network = network

    def send(self, host: int, message: Message) -> int:
        """Puts a copy into the host's inbox."""
        there = self._network.hosts.get(host)
        if there is None or there.ended:
            return 0
        num_bytes = encoded_bytes(message)
        there.inbox.put(Received(SERVER, _copy(message), num_bytes))
        return self.traffic.count_sent(message.kind, num_bytes)

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        until = Until(timeout_seconds)
        while (taken := self.inbox.take(until.left())) is not None:
            event, sender = taken
            if sender is not None and sender.silenced:
                continue
            if isinstance(event, Received):
                self.traffic.count_received(event.message.kind, event.num_bytes)
            return event
        return None

    def drop(self, host: int) -> None:
        """Ends the link to a host that is no longer needed; no `Lost` follows."""
        if host in self._network.hosts:
            self._network.hosts[host].cut("it said goodbye")

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self.inbox.put((Asked(), None))

    def close(self) -> None:
        """Tells every host that the server is gone."""
        self.closed = True
        for host in list(self._network.hosts.values()):
            host.lose_server("the server has ended")


class MemoryHostTransport:
    """A host's end; see `HostTransport`.

    Attributes:
        ended: nothing goes either way any more.
        silenced: nothing that it has sent counts any more.
    """

    def __init__(self, network: MemoryNetwork, host: int, welcome: Mapping[str, Any]) -> None:
        self.traffic = Traffic()
        self.clock_offset_seconds = 0.0
        self.welcome: Mapping[str, Any] = deepcopy(dict(welcome))
        self.inbox: Inbox[HostEvent] = Inbox()
        self.ended = False
        self.silenced = False
        self._network = network
        self._host = host
        self._closed = False
        self._laid_out: deque[int] = deque(maxlen=KEPT_EXCHANGES)
        self._parcels: dict[tuple[int, int], Message] = {}

    def send(self, message: Message) -> int:
        """Puts a copy into the server's inbox."""
        if self.ended:
            return 0
        num_bytes = encoded_bytes(message)
        received = Received(self._host, _copy(message), num_bytes)
        self._network.server.inbox.put((received, self))
        return self.traffic.count_sent(message.kind, num_bytes)

    def receive(self, timeout_seconds: float) -> HostEvent | None:
        """The next event from the server, or None when the time is up."""
        event = self.inbox.take(timeout_seconds)
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
        del addresses  # they are all here
        with self._network.changed:
            self._laid_out.append(iteration)
            self._parcels = {
                of: parcel for of, parcel in self._parcels.items() if of[0] in self._laid_out
            }
            for taker, message in outgoing.items():
                self._parcels[iteration, taker] = _copy(message)
            self._network.changed.notify_all()
        for message in outgoing.values():
            self.traffic.count_sent(message.kind, encoded_bytes(message))
        until = Until(self._network.timeouts.swap)
        return {giver: self._fetch(giver, iteration, until) for giver in incoming}

    def _fetch(self, giver: int, iteration: int, until: Until) -> Message | Lost:
        there = self._network.hosts.get(giver)
        if there is None:
            return Lost(giver, "its address is unknown")
        with self._network.changed:
            self._network.changed.wait_for(lambda: there.is_decided(iteration), until.left())
            parcel = there.hand_out(iteration, self._host)
        if parcel is None:
            return Lost(giver, there.why_nothing(iteration))
        self.traffic.count_received(parcel.kind, encoded_bytes(parcel))
        return parcel

    def is_decided(self, iteration: int) -> bool:
        """Whether it is known what this host gives in an exchange."""
        known = self._laid_out
        return self._closed or iteration in known or bool(known and iteration < known[-1])

    def hand_out(self, iteration: int, taker: int) -> Message | None:
        """What was laid out for a host, once."""
        return self._parcels.pop((iteration, taker), None)

    def why_nothing(self, iteration: int) -> str:
        """Why there was nothing to hand out."""
        if not self.is_decided(iteration):
            return "it did not answer in time"
        return "its connection closed" if self._closed else "it has nothing for this host"

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self.inbox.put(Asked())

    def close(self) -> None:
        """Tells the server that this host is gone, unless it knows; laid-out parcels stay."""
        if not self.ended:
            self.ended = True
            lost = Lost(self._host, "it said goodbye")
            self._network.server.inbox.put((lost, self))
        with self._network.changed:
            self._closed = True
            self._network.changed.notify_all()

    def cut(self, reason: str) -> None:
        """The server wants no more of it."""
        self.silenced = True
        self.lose_server(reason)

    def lose_server(self, reason: str) -> None:
        """Nothing goes either way any more."""
        if not self.ended:
            self.ended = True
            self.inbox.put(Lost(SERVER, reason))


def _copy(message: Message) -> Message:
    assert message.kind != Kind.BYE, "queues need no farewell"
    return replace(message, fields=deepcopy(message.fields), tensors=copied(message.tensors))
