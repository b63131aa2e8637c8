"""Strangers are kept out, and do not disturb the hosts that are in."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from mdgan.transport.handshake import GREETING_BYTES, NONCE_BYTES, greeting

from mdgan import messages
from mdgan.errors import BadInput
from mdgan.messages import Kind
from mdgan.transport import door
from mdgan.transport.base import Joined, Lost, Refused
from tests.processes import wait_until
from tests.unit.transport.networks import (
    LONG,
    SOON,
    TOKEN,
    TcpNetwork,
    echo,
    host_of,
    in_threads,
    joined,
    refusal,
)
from tests.unit.transport.sockets import announce, is_closed, let_in, raw


@pytest.fixture
def network() -> Iterator[TcpNetwork]:
    opened = TcpNetwork()
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("token", "says"),
    [(b"a wrong secret of tests", "its join token is another one"), (b"", "it wants a join token")],
)
def test_a_wrong_or_missing_token_is_refused(network: TcpNetwork, token: bytes, says: str) -> None:
    hosts = joined(network, 1)
    with pytest.raises(BadInput, match=says) as caught:
        host_of(network, token)
    assert "--join-token FILE" in str(caught.value)
    assert refusal(network) == "127.0.0.1: its join token is wrong or missing"
    echo(network, hosts[1], 1)


def test_without_a_token_every_host_is_let_in() -> None:
    network = TcpNetwork(token=b"")
    echo(network, joined(network, 1)[1], 1)
    network.close()


def test_a_recorded_join_is_worth_nothing_when_it_is_played_again(network: TcpNetwork) -> None:
    recorded: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(
            target=record, args=(listener, network.address, recorded), daemon=True
        ).start()
        host = host_of(network, addresses=[listener.getsockname()[:2]])
    assert isinstance(network.server.receive(LONG), Joined)
    host.close()
    assert isinstance(network.server.receive(LONG), Lost)
    said = b"".join(recorded)
    assert len(said) > 300  # greeting, proof, hello, clocks, farewell
    with socket.create_connection(network.address) as replay:
        replay.sendall(said)
        assert is_closed(replay)
    assert "wrong or missing" in refusal(network)
    assert network.server.receive(SOON) is None


def record(listener: socket.socket, to: tuple[str, int], said: list[bytes]) -> None:
    """Passes everything on between a client and the server, and keeps what the client says."""
    client = listener.accept()[0]
    server = socket.create_connection(to)

    def pump(one: socket.socket, other: socket.socket, keep: Callable[[bytes], None]) -> None:
        while content := one.recv(1 << 16):
            keep(content)
            other.sendall(content)
        other.shutdown(socket.SHUT_WR)

    in_threads(
        partial(pump, client, server, said.append), partial(pump, server, client, lambda _: None)
    )
    client.close()
    server.close()


def test_random_bytes_are_refused_and_disturb_no_host(network: TcpNetwork) -> None:
    hosts = joined(network, 1)
    for content in (os.urandom(1000), b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 3, bytes(1 << 16)):
        with socket.create_connection(network.address) as stranger:
            stranger.sendall(content)
            assert is_closed(stranger)
    assert refusal(network).startswith("127.0.0.1: it does not speak mdgan's protocol")
    echo(network, hosts[1], 1)


@pytest.mark.parametrize("bytes_from_stranger", [0, 1, GREETING_BYTES])
def test_a_stranger_that_stays_half_way_is_turned_away_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, bytes_from_stranger: int
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 0.3)
    network = TcpNetwork()
    with socket.create_connection(network.address) as stranger:
        stranger.sendall(greeting(bytes(NONCE_BYTES))[:bytes_from_stranger])
        assert is_closed(stranger)
    assert refusal(network) == "127.0.0.1: it did not answer in time"
    network.close()


def test_a_hello_that_trickles_in_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_SECONDS", 2.0)
    network = TcpNetwork()
    with let_in(network.address, TOKEN) as slow:

        def trickle() -> None:
            for byte in raw(messages.hello({"purpose": "ask", "padding": "x" * 50_000})):
                slow.send(bytes([byte]))
                time.sleep(0.02)

        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # long before all is sent
            trickle()
    network.close()


@pytest.mark.parametrize(
    "content",
    [
        announce(Kind.HELLO, (1 << 20) + 1),
        announce("BATCHES", 100),
        announce("99", 100),
        raw(messages.hello({}))[:-1] + b"?",
        bytes(100),
    ],
)
def test_other_bytes_than_a_hello_are_refused_even_with_the_token(
    network: TcpNetwork, content: bytes
) -> None:
    with let_in(network.address, TOKEN) as stranger:
        stranger.sendall(content)
        assert is_closed(stranger)
    assert refusal(network)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"purpose": "conquer"},
        {"purpose": ["join"]},
        {"purpose": "join"},
        {"purpose": "join", "host": "1"},
        {"purpose": "join", "host": True},
        {"purpose": "join", "host": 0},
        {"purpose": "join", "host": -3},
        {"purpose": "join", "host": 1.0},
    ],
)
def test_a_hello_that_makes_no_sense_is_refused(
    network: TcpNetwork, fields: Mapping[str, Any]
) -> None:
    with let_in(network.address, TOKEN) as stranger:
        stranger.sendall(raw(messages.hello(fields)))
        assert is_closed(stranger)
    assert "hello" in refusal(network)


def test_an_error_of_who_decides_is_a_refusal_and_told_in_one_printable_line() -> None:
    def admit(hello: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ValueError(f"bad\x1b[31m {hello['text']}\nmore")

    network = TcpNetwork(admit=admit)
    with pytest.raises(BadInput, match="malformed"):
        host_of(network, hello={"text": "x" * 5000})
    reason = refusal(network)
    assert reason.isprintable()
    assert len(reason) < 600
    network.close()


def test_a_flood_of_half_open_joins_disturbs_no_host(network: TcpNetwork) -> None:
    hosts = joined(network, 1)
    strangers: list[socket.socket] = []
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            stranger = socket.socket()
            stranger.settimeout(1)
            strangers.append(stranger)
            try:
                stranger.connect(network.address)
                stranger.send(greeting(bytes(NONCE_BYTES))[:7])
            except OSError:
                pass
            stop.wait(0.002)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        wait_until(lambda: len(strangers) > 2 * door.MOST_HALF_OPEN, "the flood is under way")
        echo(network, hosts[1], 1, count=30)
        late = host_of(network)  # from the address that the flood comes from
        event = network.server.receive(LONG)
        while isinstance(event, Refused):
            event = network.server.receive(LONG)
        assert isinstance(event, Joined)
        meeting = [one for one in threading.enumerate() if one.name.startswith("meet-")]
        assert len(meeting) <= door.MOST_HALF_OPEN + 2  # and the readers of the two hosts
    finally:
        stop.set()
        thread.join()
        for stranger in strangers:
            stranger.close()
    echo(network, hosts[1], 1)
    late.close()


def test_a_flood_makes_a_line_a_second_with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    complaints = door.Complaints(told.append)
    now = time.monotonic()
    monkeypatch.setattr(door, "time", SimpleNamespace(monotonic=lambda: now))
    for number in range(500):
        complaints.add(f"line {number}")
    now += 0.9
    complaints.flush()
    assert told == ["line 0"]
    now += 0.2
    complaints.flush()
    assert told[1:] == ["line 499 (and 498 more)"]
    now += 1000
    complaints.flush()
    assert len(told) == 2


def test_no_file_left_does_not_end_the_door(
    network: TcpNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    accept = socket.socket.accept

    def fail(self: socket.socket) -> Any:
        if self.getsockname() == network.address:  # hosts have doors, too
            calls.append(time.monotonic())
            if len(calls) < 4:
                raise OSError(24, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", fail)
    hosts = [network.join(1, {}), network.join(2, {})]  # the first wakes the waiting call
    events = [network.server.receive(LONG) for _ in range(3)]
    assert Refused("no host can join: Too many open files") in events
    assert sum(isinstance(event, Joined) for event in events) == 2
    assert calls[3] - calls[0] > 0.5  # it does not try again and again at once
    assert len(hosts) == 2


def test_no_host_comes_in_after_the_end(network: TcpNetwork) -> None:
    hosts = joined(network, 1)
    in_threads(network.server.close, hosts[1].close)
    with pytest.raises(BadInput, match="no server answers at"):
        host_of(network, seconds=0.3)


def test_an_error_about_what_a_host_may_send_costs_only_its_link() -> None:
    def accepts_from(hello: Mapping[str, Any]) -> Mapping[str, int]:
        return {"FEEDBACK": int(hello["num_samples"]["1"])}

    network = TcpNetwork(accepts_from=accepts_from)
    with let_in(network.address, TOKEN) as stranger:
        stranger.sendall(raw(messages.hello({"purpose": "join", "host": 1, "num_samples": 3})))
        assert is_closed(stranger)
    event = network.server.receive(LONG)
    assert isinstance(event, Lost)
    assert event.reason.startswith("it did not come in")
    network.close()
