"""Hosts and servers that die, stand still or break the rules."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from mdgan.transport.tcp_host import TcpHostTransport
from mdgan.transport.tcp_server import TcpServerTransport

from mdgan import messages
from mdgan.messages import Kind
from mdgan.transport.base import SERVER, Joined, Lost
from tests.processes import wait_until
from tests.unit.transport.networks import (
    ACCEPTS,
    FROM_HOSTS,
    LONG,
    QUICK,
    TOKEN,
    TcpNetwork,
    admit_all,
    echo,
    host_of,
    in_threads,
    joined,
    message_of,
    note,
    value_of,
)
from tests.unit.transport.sockets import announce, in_child, let_in, raw


@pytest.fixture
def network() -> Iterator[TcpNetwork]:
    opened = TcpNetwork()
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (announce("FEEDBACK", 1 << 34), "a FEEDBACK message of 17179869184 bytes; at most"),
        (announce(Kind.EXTRACTOR, 64), "EXTRACTOR message, which is not expected here"),
        (announce("77", 64), "no kind of message: b'77"),
        (raw(note(1))[:-1] + b"\1", "checksum of a DISCRIMINATORS message does not fit"),
        (bytes(1000), "not a message of this version of mdgan"),
    ],
)
def test_a_host_that_breaks_the_rules_is_lost_and_nobody_else(content: bytes, says: str) -> None:
    expected = {"FEEDBACK": 1 << 20, "DISCRIMINATORS": 1 << 20}
    network = TcpNetwork(accepts_from=lambda _: expected)
    hosts = joined(network, 1, 2)
    link = hosts[2]._link  # type: ignore[attr-defined] # only a broken host sends such a thing
    link._socket.sendall(content)
    event = network.server.receive(LONG)
    assert isinstance(event, Lost)
    assert event.peer == 2
    assert says in event.reason
    echo(network, hosts[1], 1)
    network.close()


def live(address: tuple[str, int], liveness: float) -> None:
    """A host in a process of its own."""
    timeouts = replace(QUICK, liveness=liveness)
    asked, host = threading.Event(), {"host": 4}
    TcpHostTransport([address], TOKEN, host, ACCEPTS, FROM_HOSTS, timeouts, None, asked, LONG)
    time.sleep(1000)


def test_a_host_that_is_killed_is_lost_by_its_closed_connection(network: TcpNetwork) -> None:
    with in_child(partial(live, network.address, 30.0)) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        network.server.send(4, note(1, size=1 << 22))  # more than it will have read
        os.kill(child, signal.SIGKILL)
        assert network.server.receive(LONG) == Lost(4, "its connection closed")


def test_a_host_that_stands_still_is_lost_when_the_time_is_up() -> None:
    network = TcpNetwork(replace(QUICK, liveness=2.0))
    with in_child(partial(live, network.address, 30.0)) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        assert network.server.receive(3.0) is None  # it has nothing to say, but it lives
        os.kill(child, signal.SIGSTOP)
        assert network.server.receive(LONG) == Lost(4, "silent for 2 s")
    network.close()


def test_a_host_that_stands_still_does_not_hold_up_the_server(network: TcpNetwork) -> None:
    with in_child(partial(live, network.address, 30.0)) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        hosts = joined(network, 1)
        os.kill(child, signal.SIGSTOP)
        for _ in range(5):
            network.server.send(4, note(1, size=1 << 20))
        echo(network, hosts[1], 1)


def test_a_host_cannot_fill_the_servers_memory(
    network: TcpNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.transport.tcp_server._MOST_UNTAKEN_BYTES", 1 << 20)
    hosts = joined(network, 1)
    for iteration in range(30):
        hosts[1].send(note(iteration, size=1 << 19))  # 2 MiB each
    inbox = network.server._inbox._queue  # type: ignore[attr-defined] # what waits is not public
    wait_until(lambda: inbox.qsize() > 0, "the first is there")
    assert network.server.receive(LONG) is not None
    assert inbox.qsize() <= 2
    for iteration in range(1, 30):
        assert message_of(network.server.receive(LONG)).iteration == iteration


def test_large_messages_both_ways_at_once(network: TcpNetwork) -> None:
    hosts = joined(network, 1)
    for iteration in range(4):
        network.server.send(1, note(iteration, 1.0, size=1 << 19))
        hosts[1].send(note(iteration, 2.0, size=1 << 19))
    for iteration in range(4):
        there, back = message_of(hosts[1].receive(LONG)), message_of(network.server.receive(LONG))
        assert (there.iteration, back.iteration) == (iteration, iteration)
        assert (value_of(there), value_of(back)) == (1.0, 2.0)


def test_a_host_that_vanishes_while_it_joins_is_told(network: TcpNetwork) -> None:
    with let_in(network.address, TOKEN) as connection:
        connection.sendall(raw(messages.hello({"purpose": "join", "host": 3})))
        connection.recv(1)
    event = network.server.receive(LONG)
    assert isinstance(event, Lost)
    assert event.peer == 3
    assert event.reason.startswith("it did not come in")


def test_both_ends_wait_for_nothing_when_they_close_and_leave_no_thread(
    network: TcpNetwork,
) -> None:
    before = set(threading.enumerate())
    other = TcpNetwork(replace(QUICK, farewell=1e4, link=2e4, swap=3e4, answer=4e4))
    hosts = joined(other, 1, 2)
    echo(other, hosts[1], 1)
    in_threads(other.server.close, *(host.close for host in hosts.values()))
    wait_until(lambda: set(threading.enumerate()) <= before, "their threads end")


def test_a_server_that_dies_is_noticed_by_hosts(network: TcpNetwork) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()[:2]

    def serve() -> None:
        TcpServerTransport(listener, TOKEN, admit_all, lambda _: ACCEPTS, QUICK)
        time.sleep(1000)

    with in_child(serve) as child:
        host = host_of(network, addresses=[address])
        os.kill(child, signal.SIGKILL)
        assert host.receive(LONG) == Lost(SERVER, "its connection closed")
        host.close()
    listener.close()
