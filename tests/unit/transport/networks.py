"""Servers and hosts for tests, linked by gRPC or within the process."""

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from mdgan.credentials.files import write_shared
from mdgan.credentials.identity import Identity, OwnIdentity, read_credentials
from mdgan.credentials.revocations import Revocations
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Admit, HostEvent, Joined, Received, ServerEvent, Tickets, Visited
from mdgan.transport.find import find_server
from mdgan.transport.frames import Most
from mdgan.transport.grpc_host import GrpcHostTransport
from mdgan.transport.grpc_server import AcceptsFrom, GrpcServerTransport
from mdgan.transport.guard import Access
from mdgan.transport.host_end import HostTransport
from mdgan.transport.memory import MemoryNetwork
from mdgan.transport.server_end import ServerTransport
from mdgan.transport.until import Until
from mdgan.transport.visit import ask

KINDS = (*Kind, "BATCHES", "FEEDBACK", "SWAP", "SWAPPED", "DISCRIMINATORS")
"""Those of links and engine, and some of an algorithm."""
Event = TypeVar("Event")
ACCEPTS: dict[str, Most] = dict.fromkeys(KINDS, Most(1 << 22, 1 << 22))
FROM_HOSTS = {"DISCRIMINATORS": Most(1 << 22, 1 << 22)}
LONG = 60.0
"""Seconds in which anything that is to happen has happened, on any machine."""
SOON = 0.05
"""Seconds to see that nothing comes."""

QUICK = Timeouts(connect=10.0, farewell=1.0, link=5.0, swap=10.0, answer=20.0)


def admit_all(_hello: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"generation": 1}


def accept_all(_num_workers: int) -> Mapping[str, Most]:
    return ACCEPTS


def access(identity: OwnIdentity | None = None, revocations: Revocations | None = None) -> Access:
    """What a process with some credentials lets others do."""
    none = Revocations(None, b"")
    return Access(identity, revocations or none, most_ranks=33, hello_bytes=lambda _: 1 << 16)


def note(iteration: int, value: float = 0.0, size: int = 3, **fields: Any) -> Message:
    return Message("DISCRIMINATORS", iteration, fields, {"w": torch.full((size,), value)})


def word(iteration: int, value: float = 0.0, size: int = 3) -> Message:
    """What a host says to the server and never to another host."""
    return replace(note(iteration, value, size), kind="FEEDBACK")


def value_of(message: object) -> float:
    assert isinstance(message, Message), message
    (value,) = set(message.tensors["w"].tolist())
    return float(value)


class GrpcNetwork:
    """A server on a socket in a private folder, and hosts that join it.

    With an identity, which all processes show, it is a port of loopback instead. With `relay` hosts
    leave their parcels with the server.
    """

    def __init__(
        self,
        timeouts: Timeouts = QUICK,
        admit: Admit = admit_all,
        accepts_from: AcceptsFrom = accept_all,
        identity: OwnIdentity | None = None,
        place: str | None = None,
        *,
        relay: bool = False,
        revocations: Revocations | None = None,
    ) -> None:
        self.timeouts = timeouts
        self.identity = identity
        self._folder = tempfile.TemporaryDirectory(prefix="mdgan-test-")
        self._relay = relay
        usual = f"unix:{self._folder.name}/server" if identity is None else "127.0.0.1:0"
        self.server: ServerTransport = GrpcServerTransport(
            [place or usual],
            access(identity, revocations),
            admit,
            accepts_from,
            lambda _: FROM_HOSTS,
            timeouts,
        )
        (self.place,) = self.server.places
        self._hosts: list[HostTransport] = []

    def join(self, host: int, hello: Mapping[str, Any]) -> HostTransport:
        joined = host_of(self, hello={"host": host, **hello})
        self._hosts.append(joined)
        return joined

    def parcels_at(self, host: int) -> str | None:
        if self._relay:
            return None
        on_a_socket = self.place.startswith("unix:")
        return f"unix:{self._folder.name}/{host}" if on_a_socket else "127.0.0.1:0"

    def close(self) -> None:
        in_threads(*(host.close for host in self._hosts), self.server.close)
        self._folder.cleanup()


class RelayedNetwork(GrpcNetwork):
    """The same over TLS, where the server hands out what hosts lay out."""

    def __init__(self, timeouts: Timeouts = QUICK, admit: Admit = admit_all) -> None:
        super().__init__(timeouts, admit, identity=credentials(), relay=True)


@cache
def credentials() -> Identity:
    """Those of one owner's machines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.cred"
        write_shared(path, timedelta(days=1))
        return read_credentials(path)


class MemoryPlace:
    """The same within this process."""

    def __init__(self, timeouts: Timeouts = QUICK, admit: Admit = admit_all) -> None:
        self._network = MemoryNetwork(timeouts, admit)
        self.server: ServerTransport = self._network.server

    def join(self, host: int, hello: Mapping[str, Any]) -> HostTransport:
        return self._network.join(host, {"host": host, **hello})

    def close(self) -> None:
        pass


Network = GrpcNetwork | MemoryPlace


def next_event(network: Network) -> Any:
    """The next event at the server that is not about a process that only asks or watches."""
    event = network.server.receive(LONG)
    while isinstance(event, Visited):
        event = network.server.receive(LONG)
    return event


def joined(network: Network, *hosts: int) -> dict[int, HostTransport]:
    """Hosts that the server knows of."""
    link_of = {host: network.join(host, {}) for host in hosts}
    events = [next_event(network) for _ in hosts]
    assert all(isinstance(event, Joined) for event in events), events
    return link_of


def listening(network: Network, hosts: Mapping[int, HostTransport]) -> dict[int, Any]:
    """Where hosts that have just joined hand out parcels."""
    links = {}
    for _ in hosts:
        event = network.server.receive(LONG)
        assert isinstance(event, Joined), event
        links[event.host] = event.hello.get("listens")
    return links


Pair = tuple[HostTransport, HostTransport, dict[int, Any]]


def giver_and_taker(network: Network) -> Pair:
    """A giver, 1, a taker, 2, and where they hand out parcels."""
    hosts = {number: network.join(number, {}) for number in (1, 2)}
    return hosts[1], hosts[2], listening(network, hosts)


def ordered(network: Network, iteration: int, *pairs: tuple[int, int]) -> dict[int, Tickets]:
    """Givers are to hand something to takers: the tickets of each host."""
    made = network.server.order_exchange(iteration, pairs)
    return {
        host: Tickets(
            {taker: ticket for (giver, taker), ticket in made.items() if giver == host},
            {giver: ticket for (giver, taker), ticket in made.items() if taker == host},
        )
        for host in {host for pair in pairs for host in pair}
    }


def expect(end: ServerTransport | HostTransport, kind: type[Event]) -> Event:
    """The next event, which must be of a kind."""
    event = end.receive(LONG)
    assert isinstance(event, kind), event
    return event


def message_of(event: ServerEvent | HostEvent | None) -> Message:
    assert isinstance(event, Received), event
    return event.message


def in_threads(*works: Callable[[], object]) -> None:
    """Runs all at once; an error in one of them is an error here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LONG)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def refusal(network: GrpcNetwork) -> str:
    """Why a caller was not let in, the next time that one was not."""
    event = network.server.receive(LONG)
    while isinstance(event, Visited) and not event.is_refused:
        event = network.server.receive(LONG)
    assert isinstance(event, Visited), event
    return event.told


def echo(network: GrpcNetwork, host: Any, number: int, count: int = 3) -> None:
    """Messages still go there and back."""
    for iteration in range(count):
        network.server.send(number, note(iteration, 1.0))
        host.send(message_of(host.receive(LONG)))
        event = next_event(network)
        assert message_of(event).iteration == iteration


def host_of(
    network: GrpcNetwork,
    hello: Mapping[str, Any] | None = None,
    seconds: float = LONG,
    interrupted: threading.Event | None = None,
    places: Sequence[str] = (),
    identity: OwnIdentity | None = None,
    revocations: Revocations | None = None,
) -> GrpcHostTransport:
    """Joins as `mdgan.launch.links` does."""
    identity = identity or network.identity
    fields = {"host": 5, **(hello or {})}
    until = Until(seconds, interrupted)

    def attempt(place: str, until: Until) -> GrpcHostTransport:
        return GrpcHostTransport(
            place,
            access(identity, revocations),
            fields,
            ACCEPTS,
            FROM_HOSTS,
            network.timeouts,
            network.parcels_at(fields["host"]),
            until,
        )

    addresses = list(places) or [network.place]
    return find_server(addresses, attempt, until, seconds, has_identity=identity is not None)


def ask_at(
    *places: str,
    identity: OwnIdentity | None = None,
    seconds: float = LONG,
    interrupted: threading.Event | None = None,
) -> Mapping[str, Any]:
    """Asks for the settings of a run, as `mdgan join` does in its own fork."""

    def attempt(place: str, until: Until) -> Mapping[str, Any]:
        return ask(place, identity, QUICK, until)

    until = Until(seconds, interrupted)
    return find_server(places, attempt, until, seconds, has_identity=identity is not None)
