"""How a host looks for its server."""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mdgan.errors import BadInput, Interrupted
from mdgan.transport.base import Joined
from tests.unit.transport.networks import (
    LONG,
    TcpNetwork,
    host_of,
    in_threads,
)
from tests.unit.transport.sockets import is_closed

SHORT = 3.0
"""Seconds of a search that is in vain; each address answers once in this time on any machine."""


@pytest.fixture
def network() -> Iterator[TcpNetwork]:
    opened = TcpNetwork()
    yield opened
    opened.close()


def test_a_host_that_is_refused_by_one_address_finds_the_other(network: TcpNetwork) -> None:
    def admit(_hello: Mapping[str, Any]) -> str:
        return "not here"

    other = TcpNetwork(admit=admit)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        deserted = gone.getsockname()[:2]
    host = host_of(network, addresses=[deserted, other.address, network.address])
    assert isinstance(network.server.receive(LONG), Joined)
    host.close()
    other.close()


def test_an_older_server_is_left_alone() -> None:
    older, newer = TcpNetwork(admit=lambda _: {"generation": 2}), None
    try:
        with pytest.raises(BadInput, match="older one, of generation 2; this host has seen gen"):
            host_of(older, hello={"generation": 3}, seconds=SHORT)
        newer = TcpNetwork(admit=lambda _: {"generation": 3})
        addresses = [older.address, newer.address]
        host = host_of(older, hello={"generation": 3}, addresses=addresses)
        assert host.welcome["generation"] == 3
        host.close()
    finally:
        older.close()
        if newer is not None:
            newer.close()


def test_a_server_that_comes_later_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mdgan")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))  # ours, but no server listens yet
    opened: list[TcpNetwork] = []
    network = TcpNetwork()

    def serve() -> None:
        time.sleep(0.3)  # the host has looked in vain by then
        listener.listen()
        opened.append(TcpNetwork(listener=listener))

    threading.Thread(target=serve, daemon=True).start()
    host = host_of(network, addresses=[listener.getsockname()])
    in_threads(host.close, opened[0].close, network.close)
    assert caplog.messages == []


@pytest.mark.parametrize("answers", [b"", b"SSH-2.0-OpenSSH_9.6\r\n" * 3])
def test_something_else_that_listens_is_named(network: TcpNetwork, answers: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        host, port = other.getsockname()[:2]

        def answer() -> None:
            connection = other.accept()[0]
            connection.sendall(answers)
            is_closed(connection)
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(BadInput, match=f"whatever listens at {host}:{port} is no mdgan server"):
            host_of(network, addresses=[(host, port)], seconds=SHORT)


def test_looking_for_a_server_ends_when_asked(network: TcpNetwork) -> None:
    interrupted = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Timer(0.2, interrupted.set).start()
        with pytest.raises(Interrupted):
            host_of(network, addresses=[silent.getsockname()[:2]], interrupted=interrupted)


def test_an_unknown_name_is_named(network: TcpNetwork) -> None:
    with pytest.raises(BadInput, match=r"--master-addr no-such-host\.invalid: unknown host"):
        host_of(network, addresses=[("no-such-host.invalid", 29500)], seconds=0.1)


def test_hosts_listen_on_the_address_that_reaches_the_server(network: TcpNetwork) -> None:
    network.join(1, {})
    event = network.server.receive(LONG)
    assert isinstance(event, Joined)
    address, port = event.hello["listens"]
    assert address == "127.0.0.1"
    with socket.create_connection((address, port)) as stranger:
        stranger.sendall(os.urandom(100))
        assert is_closed(stranger)
