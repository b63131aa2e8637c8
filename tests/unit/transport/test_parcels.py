"""Givers and takers that are not what they should be; the rest is in the contract."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from mdgan.transport.handshake import as_server
from mdgan.transport.wire import encode

from mdgan.messages import Kind, Message
from mdgan.transport.base import Joined, Lost
from mdgan.transport.until import Until
from tests.processes import wait_until
from tests.unit.transport.networks import (
    LONG,
    TOKEN,
    TcpNetwork,
    in_threads,
    note,
)
from tests.unit.transport.sockets import is_closed, let_in, raw


@pytest.fixture
def network() -> Iterator[TcpNetwork]:
    opened = TcpNetwork()
    yield opened
    opened.close()


def test_the_key_of_parcels_is_for_hosts_alone(network: TcpNetwork) -> None:
    host = network.join(1, {})
    assert host.welcome == {"generation": 1, "liveness": network.timeouts.liveness}


def parcel_door(network: TcpNetwork) -> tuple[str, int]:
    network.join(1, {})
    event = network.server.receive(LONG)
    assert isinstance(event, Joined)
    return event.hello["listens"][0], event.hello["listens"][1]


def test_parcels_are_not_for_who_knows_the_token_only(
    network: TcpNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    door_of_host = parcel_door(network)
    with pytest.raises(RuntimeError, match="its join token is another one"):
        let_in(door_of_host, TOKEN)
    wait_until(lambda: "turned away a process: 127.0.0.1" in caplog.text, "it is told")


def test_a_giver_that_dies_while_it_gives(network: TcpNetwork) -> None:
    taker = network.join(2, {})
    assert isinstance(network.server.receive(LONG), Joined)
    frame = raw(note(4, size=1 << 18))
    key = taker._peers_key  # type: ignore[attr-defined] # which a giver knows as well
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def give_half() -> None:
            connection = listener.accept()[0]
            as_server(connection, key, Until(LONG))
            connection.recv(1 << 16)
            connection.settimeout(LONG)
            connection.sendall(frame[: len(frame) // 2])
            connection.close()

        found: list[Any] = []
        addresses = {9: list(listener.getsockname()[:2])}
        in_threads(give_half, lambda: found.append(taker.exchange(4, {}, [9], addresses)[9]))
    assert found == [Lost(9, "its connection closed")]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (note(3), "of iteration 3"),
        (Message(Kind.STOP, 4), "not expected"),
        (note(4, size=1 << 21), "at most"),
    ],
)
def test_a_giver_that_gives_something_else(network: TcpNetwork, answer: Message, says: str) -> None:
    taker = network.join(2, {})
    key = taker._peers_key  # type: ignore[attr-defined] # which a giver knows as well
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def give() -> None:
            connection = listener.accept()[0]
            with connection:
                as_server(connection, key, Until(LONG))
                connection.recv(1 << 16)
                connection.settimeout(LONG)
                header, body = encode(answer)
                connection.sendall(header.numpy().tobytes() + body.numpy().tobytes()[:1000])
                is_closed(connection)

        found: list[Any] = []
        addresses = {9: list(listener.getsockname()[:2])}
        in_threads(give, lambda: found.append(taker.exchange(4, {}, [9], addresses)[9]))
    assert isinstance(found[0], Lost)
    assert says in found[0].reason
