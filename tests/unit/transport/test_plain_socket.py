"""The Unix socket of one machine; `test_contract.py` has what every transport does."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.system import peer_user
from mdgan.transport import plain_socket
from mdgan.transport.base import Joined, Lost
from mdgan.transport.frames import PIECE_BYTES, CutOff, Frame, Most, WireError, encode
from mdgan.transport.grpc_host import GrpcHostTransport
from mdgan.transport.plain_socket import Door, PlainSocket, knock
from tests.unit.transport.networks import (
    ACCEPTS,
    LONG,
    GrpcNetwork,
    echo,
    expect,
    host_of,
    in_threads,
    joined,
)

EXPECTED = {"FEEDBACK": Most(1 << 20, 1 << 16)}


def said(kind: bytes, size: int, body: bytes = b"") -> bytes:
    """What announces a message of that size, and what comes of it."""
    return struct.pack("<16sqQQ", kind, 1, size, 0) + body


def whole(body: bytes) -> bytes:
    return said(b"FEEDBACK", len(body), body)


LIES = [
    (said(b"FEEDBACK", 1 << 34), "a FEEDBACK message of 17179869184 bytes, at most 1048576"),
    (said(b"EXTRACTOR", 64), "a EXTRACTOR message is not expected"),
    (said(b"77\x1b", 64), "a 77? message is not expected"),
    (whole(bytes(1000)), "damaged FEEDBACK message"),
    (whole(encode(Message("FEEDBACK", 1, {"x": [[]] * 30_000})).body), "at most 65536 are"),
    (whole(b"12"), "damaged FEEDBACK message"),
    (b"\xff" * 100, "message is not expected"),
    (said(b"", 1), "a  message is not expected"),
]


@pytest.mark.parametrize(("lie", "says"), LIES)
def test_a_host_that_breaks_the_rules_is_lost_and_nobody_else(lie: bytes, says: str) -> None:
    network = GrpcNetwork(accepts_from=lambda _: {**EXPECTED, "DISCRIMINATORS": Most(1000, 1000)})
    hosts = joined(network, 1, 2)
    connection_of(hosts[2]).sendall(lie)
    event = expect(network.server, Lost)
    assert (event.peer, event.lied) == (2, True)
    assert says in event.reason
    assert isinstance(hosts[2].receive(LONG), Lost)
    echo(network, hosts[1], 1)
    network.close()


@pytest.mark.parametrize("came", [b"", b"FEED", said(b"FEEDBACK", 100, bytes(50))])
def test_a_connection_that_breaks_is_no_lie(network: GrpcNetwork, came: bytes) -> None:
    connection = connection_of(joined(network, 1)[1])
    connection.sendall(came)
    connection.shutdown(socket.SHUT_RDWR)
    assert network.server.receive(LONG) == Lost(1, "its connection closed")


def test_a_host_whose_call_ends_is_lost_though_its_socket_is_there(network: GrpcNetwork) -> None:
    host = joined(network, 1)[1]
    assert isinstance(host, GrpcHostTransport)
    host._call.cancel()
    assert expect(network.server, Lost).peer == 1
    assert isinstance(host.receive(LONG), Lost)


def connection_of(host: object) -> socket.socket:
    """What only a broken host writes to by itself."""
    assert isinstance(host, GrpcHostTransport)
    assert isinstance(host._way, PlainSocket)
    return host._way._socket


# Callers of the socket.


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    opened = Door(f"unix:{tmp_path}/server", 3)
    yield opened
    opened.close()
    assert not list(tmp_path.iterdir())


def test_a_host_comes_in(door: Door, tmp_path: Path) -> None:
    host, server = pair(door, tmp_path)
    assert host.put(Frame("FEEDBACK", 1, b"12"))
    assert next(server.frames(ACCEPTS)) == Frame("FEEDBACK", 1, b"12")
    for end in (host, server):
        end.cut()
        end.send_waiting()
    with pytest.raises(CutOff):
        next(host.frames(ACCEPTS))


def pair(door: Door, folder: Path) -> tuple[PlainSocket, PlainSocket]:
    host = knock(f"unix:{folder}/server", door.told, LONG)
    return host, door.take(LONG)


@pytest.mark.parametrize("shown", [b"", b"0" * 32, b"\xff" * 32])
def test_who_does_not_know_the_key_is_not_let_in(door: Door, tmp_path: Path, shown: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "m3"))
        stranger.sendall(shown)
        stranger.shutdown(socket.SHUT_WR)
        with pytest.raises(WireError, match="another process came to its socket"):
            door.take(LONG)
        assert stranger.recv(1) == b""


def test_another_user_is_not_let_in(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = knock(f"unix:{tmp_path}/server", door.told, LONG)
    monkeypatch.setattr(plain_socket, "peer_user", lambda _: os.geteuid() + 1)
    with pytest.raises(WireError, match="another process came to its socket"):
        door.take(LONG)
    monkeypatch.undo()
    assert peer_user(host._socket) == os.geteuid()
    host._socket.close()


def test_a_host_that_does_not_come_is_not_waited_for(door: Door) -> None:
    with pytest.raises(WireError, match="it did not come to its socket"):
        door.take(0.05)


def test_a_door_can_be_given_up(door: Door) -> None:
    def wait() -> None:
        with pytest.raises(WireError, match="another process came to its socket"):
            door.take(LONG)

    in_threads(wait, door.wake)


@pytest.mark.parametrize(
    "message",
    [7, {}, {"name": "../m1", "key": ""}, {"name": "m1\n"}, {"name": "m1", "key": "\ud800"}],
)
def test_a_server_that_tells_of_no_door(message: Any, tmp_path: Path) -> None:
    with pytest.raises(WireError, match="socket for messages"):
        knock(f"unix:{tmp_path}/server", message, LONG)


def test_a_host_that_comes_to_no_door_may_try_again(
    network: GrpcNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def astray(*_: object) -> PlainSocket:
        raise WireError("its socket for messages is not there")

    monkeypatch.setattr("mdgan.transport.grpc_host.knock", astray)
    with pytest.raises(BadInput):
        host_of(network, seconds=0.3)
    monkeypatch.undo()
    late = host_of(network)
    event = network.server.receive(LONG)
    while not isinstance(event, Joined):
        event = network.server.receive(LONG)
    echo(network, late, 5)
    late.close()


# What has to wait.


@pytest.fixture
def ends() -> Iterator[tuple[PlainSocket, PlainSocket]]:
    """Two ends of a connection; neither sends by its own thread."""
    connections = socket.socketpair()
    made = PlainSocket(connections[0]), PlainSocket(connections[1])
    yield made
    for connection in connections:
        connection.close()


def test_what_the_peer_does_not_take_waits_and_keeps_its_order(
    ends: tuple[PlainSocket, PlainSocket],
) -> None:
    large = [Frame("SWAP", n, bytes(8) + bytes([n]) * (3 * PIECE_BYTES)) for n in range(3)]
    small = [Frame("SWAP", 10 + n, bytes([n])) for n in range(3)]
    for frame in (*large, *small):
        assert ends[0].put(frame)
    ends[0].end()
    assert not ends[0].put(small[0])
    results: list[Frame] = []
    in_threads(ends[0].send_waiting, lambda: results.extend(ends[1].frames(ACCEPTS)))
    assert results == [*large, *small]


def test_what_waits_for_a_peer_that_takes_nothing_in_is_bounded(
    ends: tuple[PlainSocket, PlainSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.transport.streams.MOST_UNSENT_BYTES", 1 << 24)
    frame = Frame("SWAP", 1, bytes(1 << 22))
    put = 0
    while ends[0].put(frame):
        put += 1
        assert put < 100
    reading = ends[1].frames(ACCEPTS)
    threading.Thread(target=ends[0].send_waiting, daemon=True).start()
    for _ in range(put):
        assert next(reading) == frame
    assert ends[0].put(frame)
    assert next(reading) == frame
    ends[0].cut()


@pytest.mark.parametrize("end", [PlainSocket.cut, lambda end: end._socket.close()])
def test_nothing_is_sent_to_a_peer_that_is_gone(
    ends: tuple[PlainSocket, PlainSocket], end: Callable[[PlainSocket], None]
) -> None:
    end(ends[1])
    assert not ends[0].put(Frame("SWAP", 1, b"1"))
    ends[0].end()
    ends[0].send_waiting()
    with pytest.raises(CutOff):
        next(ends[0].frames(ACCEPTS))


def test_an_announced_message_takes_no_memory_before_it_comes(
    ends: tuple[PlainSocket, PlainSocket],
) -> None:
    taken_digests: list[int] = []
    first = PlainSocket._read

    def read(self: PlainSocket, into: bytearray) -> bytearray:
        taken_digests.append(len(into))
        return first(self, into)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainSocket, "_read", read)
        ends[0]._socket.sendall(said(Kind.STATE.encode(), 1 << 33))
        ends[0].cut()
        with pytest.raises(CutOff):
            next(ends[1].frames({Kind.STATE: Most(1 << 33, 1 << 33)}))
    assert max(taken_digests) <= PIECE_BYTES


def test_an_empty_body_and_a_taker_arrive(ends: tuple[PlainSocket, PlainSocket]) -> None:
    sent = [Frame(Kind.LAIDOUT, -1, b""), Frame("SWAP", 5, b"12", taker=7)]
    for frame in sent:
        assert ends[0].put(frame)
    reading = ends[1].frames(ACCEPTS)
    assert [next(reading), next(reading)] == sent


SENDS_TO_A_LOST_PEER = """
import signal, socket
from mdgan.messages import Message
from mdgan.transport.frames import encode
from mdgan.transport.plain_socket import PlainSocket
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
theirs.close()
print(PlainSocket(ours).put(encode(Message("FEEDBACK", 1, {}))))
"""


def test_no_signal_ends_a_program_that_sends_to_a_lost_peer() -> None:
    command = [sys.executable, "-c", SENDS_TO_A_LOST_PEER]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr
