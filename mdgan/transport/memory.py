"""Everything in one process: hosts are threads, links are queues.

The roles are the same as over c10d; what is sent is copied, as a network would.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import (
    SERVER,
    Asked,
    HostEvent,
    Joined,
    Lost,
    Received,
    ServerEvent,
)
from mdgan.transport.inbox import Inbox
from mdgan.transport.traffic import Traffic
from mdgan.transport.wire import copied, encoded_bytes


class MemoryNetwork:
    """The switchboard of one process.

    Attributes:
        server: the server's end.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.server = MemoryServerTransport(self)
        self.hosts: dict[int, MemoryHostTransport] = {}
        self._mail: dict[tuple[int, int], Inbox[Message]] = {}

    def join(self, host: int, hello: Mapping[str, Any]) -> "MemoryHostTransport":
        """Adds a host and tells the server."""
        self.hosts[host] = MemoryHostTransport(self, host)
        self.server.inbox.put(Joined(host, hello))
        return self.hosts[host]

    def mail(self, sender: int, receiver: int) -> Inbox[Message]:
        """The queue from one host to another."""
        return self._mail.setdefault((sender, receiver), Inbox())


class MemoryServerTransport:
    """The server's end; see `ServerTransport`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.traffic = Traffic()
        self.inbox: Inbox[ServerEvent] = Inbox()
        self._network = network
        self._dropped: set[int] = set()

    def deliver(self, host: int, event: ServerEvent) -> None:
        """Takes what a host sends, unless it was dropped."""
        if host not in self._dropped:
            self.inbox.put(event)

    def send(self, host: int, message: Message) -> int:
        """Puts a copy into the host's inbox."""
        if host in self._dropped or host not in self._network.hosts:
            return 0
        num_bytes = encoded_bytes(message)
        self._network.hosts[host].inbox.put(Received(SERVER, _copy(message), num_bytes))
        return self.traffic.count_sent(message.kind, num_bytes)

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        event = self.inbox.take(timeout_seconds)
        if isinstance(event, Received):
            self.traffic.count_received(event.message.kind, event.num_bytes)
        return event

    def drop(self, host: int) -> None:
        """Forgets a host."""
        self._dropped.add(host)

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self.inbox.put(Asked())

    def close(self) -> None:
        """Tells every host that the server is gone."""
        for host in self._network.hosts.values():
            host.inbox.put(Lost(SERVER, "the server has ended"))


class MemoryHostTransport:
    """A host's end; see `HostTransport`."""

    def __init__(self, network: MemoryNetwork, host: int) -> None:
        self.traffic = Traffic()
        self.clock_offset_seconds = 0.0
        self.inbox: Inbox[HostEvent] = Inbox()
        self._network = network
        self._host = host

    def send(self, message: Message) -> int:
        """Puts a copy into the server's inbox."""
        num_bytes = encoded_bytes(message)
        self._network.server.deliver(self._host, Received(self._host, _copy(message), num_bytes))
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
    ) -> dict[int, Message | Lost]:
        """Sends and receives one message a host; see `HostTransport.exchange`."""
        for receiver, message in outgoing.items():
            self._network.mail(self._host, receiver).put(_copy(message))
            self.traffic.count_sent(message.kind, encoded_bytes(message))
        arrived: dict[int, Message | Lost] = {}
        for sender in incoming:
            mail, limit = self._network.mail(sender, self._host), self._network.timeouts.swap
            message_or_none = mail.take(limit)
            while message_or_none is not None and message_or_none.iteration != iteration:
                message_or_none = mail.take(limit)  # it came too late for an earlier exchange
            arrived[sender] = message_or_none or Lost(sender, "no discriminator came in time")
            if message_or_none is not None:
                kind = message_or_none.kind
                self.traffic.count_received(kind, encoded_bytes(message_or_none))
        return arrived

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self.inbox.put(Asked())

    def close(self) -> None:
        """Tells the server that this host is gone, unless it was the server that ended."""
        self._network.server.deliver(self._host, Lost(self._host, "the host has ended"))


def _copy(message: Message) -> Message:
    assert message.kind is not Kind.BYE, "queues need no farewell"
    return replace(message, fields=deepcopy(message.fields), tensors=copied(message.tensors))
