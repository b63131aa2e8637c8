"""Everything in one process: hosts are threads, links are queues.

The roles are the same as over c10d; what is sent is copied, as a network would.
"""

import queue
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mdgan.config import Timeouts
from mdgan.messages import Kind, Message
from mdgan.transport.base import (
    SERVER,
    Asked,
    HostEvent,
    Joined,
    Lost,
    Received,
    ServerEvent,
)
from mdgan.transport.wire import copied

Event = TypeVar("Event")


class MemoryNetwork:
    """The switchboard of one process.

    Attributes:
        server: the server's end.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.server = MemoryServerTransport(self)
        self.hosts: dict[int, MemoryHostTransport] = {}
        self._mail: dict[tuple[int, int], queue.SimpleQueue[Message]] = {}

    def join(self, host: int, hello: Mapping[str, Any]) -> "MemoryHostTransport":
        """Adds a host and tells the server."""
        self.hosts[host] = MemoryHostTransport(self, host)
        self.server.inbox.put(Joined(host, hello))
        return self.hosts[host]

    def mail(self, sender: int, receiver: int) -> "queue.SimpleQueue[Message]":
        """The queue from one host to another."""
        return self._mail.setdefault((sender, receiver), queue.SimpleQueue())


class MemoryServerTransport:
    """The server's end; see `ServerTransport`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.inbox: queue.SimpleQueue[ServerEvent] = queue.SimpleQueue()
        self._network = network

    def send(self, host: int, message: Message) -> None:
        """Puts a copy into the host's inbox."""
        if host in self._network.hosts:
            self._network.hosts[host].inbox.put(Received(SERVER, _copy(message)))

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        return _take(self.inbox, timeout_seconds)

    def drop(self, host: int) -> None:
        """Forgets a host."""
        self._network.hosts.pop(host, None)

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
        self.inbox: queue.SimpleQueue[HostEvent] = queue.SimpleQueue()
        self._network = network
        self._host = host

    def send(self, message: Message) -> None:
        """Puts a copy into the server's inbox."""
        self._network.server.inbox.put(Received(self._host, _copy(message)))

    def receive(self, timeout_seconds: float) -> HostEvent | None:
        """The next event from the server, or None when the time is up."""
        return _take(self.inbox, timeout_seconds)

    def exchange(
        self,
        iteration: int,  # noqa: ARG002 - queues have no links to open anew
        outgoing: Mapping[int, Message],
        incoming: Collection[int],
    ) -> dict[int, Message | Lost]:
        """Sends and receives one message a host; see `HostTransport.exchange`."""
        for receiver, message in outgoing.items():
            self._network.mail(self._host, receiver).put(_copy(message))
        arrived: dict[int, Message | Lost] = {}
        for sender in incoming:
            message_or_none = _take(
                self._network.mail(sender, self._host), self._network.timeouts.swap
            )
            arrived[sender] = message_or_none or Lost(sender, "no discriminator came in time")
        return arrived

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self.inbox.put(Asked())

    def close(self) -> None:
        """Tells the server that this host is gone, unless it was the server that ended."""
        self._network.server.inbox.put(Lost(self._host, "the host has ended"))


def _copy(message: Message) -> Message:
    assert message.kind is not Kind.BYE, "queues need no farewell"
    return replace(message, tensors=copied(message.tensors))


def _take(inbox: "queue.SimpleQueue[Event]", timeout_seconds: float) -> Event | None:
    try:
        return inbox.get(timeout=timeout_seconds)
    except queue.Empty:
        return None
