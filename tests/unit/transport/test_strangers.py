"""The server keeps strangers out, and they do not disturb its hosts."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import grpc
import pytest

from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from mdgan.transport.base import Joined, Lost
from mdgan.transport.frames import Frame, encode
from mdgan.transport.links_pb2 import Nothing, Piece, Welcome
from mdgan.transport.streams import ASK, TAKE_PART, WATCH, open_channel
from tests.claims.registry import claim
from tests.marks import mostly_slow
from tests.processes import wait_until
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    GrpcNetwork,
    ask_at,
    echo,
    host_of,
    joined,
    note,
    refusal,
)
from tests.unit.transport.test_identities import GOOD

TLS = pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
MOSTLY_TLS = pytest.mark.parametrize("is_tls", mostly_slow([False, True], [True]))


@pytest.fixture
def opened_with() -> Mapping[str, Any]:
    return {"place": "127.0.0.1:0"}


def address(network: GrpcNetwork) -> tuple[str, int]:
    host, _, port = network.place.rpartition(":")
    return host, int(port)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end closes in time, whatever it sends before."""
    connection.settimeout(LONG)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


GARBAGE = {
    "random": os.urandom(1000),
    "http": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 3,
    "zeros": bytes(1 << 16),
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(1000),
    "hello": bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + os.urandom(509),
}


@TLS
def test_random_bytes_end_their_connection_and_disturb_no_host(is_tls: bool) -> None:
    network = GrpcNetwork(identity=GOOD if is_tls else None, place="127.0.0.1:0")
    hosts = joined(network, 1)
    for content in GARBAGE.values():
        with socket.create_connection(address(network)) as stranger:
            stranger.sendall(content)
            assert is_closed(stranger)
    echo(network, hosts[1], 1)
    network.close()


@MOSTLY_TLS
@claim("flood", "for 5 s each")
def test_who_says_nothing_is_turned_away(is_tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdgan.transport.streams._HANDSHAKE_MS", 300)
    monkeypatch.setattr("mdgan.transport.front._FIRST_WORDS_SECONDS", 1)
    network = GrpcNetwork(identity=GOOD if is_tls else None, place="127.0.0.1:0")
    with socket.create_connection(address(network)) as stranger:
        assert is_closed(stranger)
    network.close()


@MOSTLY_TLS
@claim("flood", "A flood of knocks can cost speed, and no host its link")
def test_a_flood_of_half_open_connections_disturbs_no_host(is_tls: bool) -> None:
    network = GrpcNetwork(identity=GOOD if is_tls else None, place="127.0.0.1:0")
    hosts = joined(network, 1)
    strangers: list[socket.socket] = []
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set() and len(strangers) < 400:
            stranger = socket.socket()
            stranger.settimeout(1)
            strangers.append(stranger)
            try:
                stranger.connect(address(network))
                stranger.send(b"PRI"[: len(strangers) % 4])
            except OSError:
                pass
            stop.wait(0.002)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        wait_until(lambda: len(strangers) > 150, "the flood is under way")
        echo(network, hosts[1], 1, count=30)
        late = host_of(network)
        assert isinstance(network.server.receive(LONG), Joined)
        echo(network, late, 5)
    finally:
        stop.set()
        thread.join()
        for stranger in strangers:
            stranger.close()
    echo(network, hosts[1], 1)
    late.close()
    network.close()


# Who speaks gRPC.


class Stranger:
    """Calls a server as it likes."""

    def __init__(self, network: GrpcNetwork) -> None:
        self.channel = open_channel(network.place, None, "", QUICK)

    def take_part(self, *pieces: bytes) -> grpc.StatusCode:
        """Sends pieces, waits for the end, and returns what it was told."""
        end = threading.Event()

        def say() -> Iterator[bytes]:
            yield from pieces
            end.wait(LONG)

        call: Any = self.channel.stream_stream(TAKE_PART, None, Piece.FromString)
        try:
            for _ in call(say(), timeout=LONG):
                pass
        except grpc.RpcError as error:
            return error.code()
        finally:
            end.set()
        return grpc.StatusCode.OK

    def say(self, fields: str) -> grpc.StatusCode:
        ask = self.channel.unary_stream(ASK, Welcome.SerializeToString, Welcome.FromString)
        try:
            list(ask(Welcome(fields=fields), timeout=LONG))
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


@pytest.fixture
def stranger(network: GrpcNetwork) -> Iterator[Stranger]:
    made = Stranger(network)
    yield made
    made.channel.close()


def piece(kind: str, size: int, data: bytes = b"") -> bytes:
    return Piece(kind=kind, size=size, data=data).SerializeToString()


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(Kind.HELLO, (1 << 20) + 1)],
        [b"\xff" * 50],
        encode(note(1)).pieces,
        Frame(Kind.HELLO, 0, bytes(100)).pieces,
    ],
)
def test_other_bytes_than_a_hello_are_refused(
    network: GrpcNetwork, stranger: Stranger, pieces: list[bytes]
) -> None:
    hosts = joined(network, 1)
    assert stranger.take_part(*pieces) is not grpc.StatusCode.OK
    assert refusal(network).startswith(("its hello names no host", "127.0.0.1: "))
    echo(network, hosts[1], 1)


@pytest.mark.parametrize("fields", [{}, {"host": "1"}, {"host": True}, {"host": 0}, {"host": [1]}])
def test_a_hello_that_names_no_host_is_refused(
    network: GrpcNetwork, stranger: Stranger, fields: Mapping[str, Any]
) -> None:
    hello = encode(Message(Kind.HELLO, 0, fields)).pieces
    assert stranger.take_part(*hello) is grpc.StatusCode.PERMISSION_DENIED
    assert "hello" in refusal(network)


def test_nobody_says_for_what_it_comes_but_by_the_way_it_comes(
    network: GrpcNetwork, stranger: Stranger
) -> None:
    fields = {"host": 7, "purpose": "ask"}
    call: Any = stranger.channel.stream_stream(TAKE_PART, None, Piece.FromString)
    coming = call(iter(encode(Message(Kind.HELLO, 0, fields)).pieces))
    next(coming)
    assert isinstance(network.server.receive(LONG), Joined)
    assert isinstance(network.server.receive(LONG), Lost)


def test_a_stranger_that_says_no_hello_is_not_waited_for(
    network: GrpcNetwork, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.transport.guard._FIRST_SECONDS", 0.3)
    begin = time.monotonic()
    assert stranger.take_part() is not grpc.StatusCode.OK
    assert time.monotonic() - begin < LONG / 2


@pytest.mark.parametrize("fields", ["", "{", "[]", "7", "[" * 50_000, "9" * 5000, '{"host": 1}'])
def test_what_a_stranger_says_as_it_asks_is_not_read_and_is_short(
    network: GrpcNetwork, stranger: Stranger, fields: str
) -> None:
    is_long = len(fields) > 4096
    assert stranger.say(fields) is (grpc.StatusCode.INTERNAL if is_long else grpc.StatusCode.OK)


def test_an_error_of_who_decides_is_a_refusal_and_told_in_one_printable_line() -> None:
    def admit(hello: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ValueError(f"bad\x1b[31m {hello['text']}\nmore")

    network = GrpcNetwork(admit=admit)
    with pytest.raises(BadInput, match="malformed"):
        host_of(network, hello={"text": "x" * 5000})
    reason = refusal(network)
    assert reason.isprintable()
    assert len(reason) < 600
    network.close()


def test_more_calls_than_there_may_be_are_refused_and_hosts_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mdgan.transport.guard.OF_A_RANK", 0)
    network = GrpcNetwork(place="127.0.0.1:0")
    hosts = joined(network, 1)
    stranger = Stranger(network)
    watch = stranger.channel.unary_stream(WATCH, Nothing.SerializeToString, Welcome.FromString)
    refused = threading.Event()
    calls: list[Any] = [watch(Nothing()) for _ in range(20)]

    def note(call: Any) -> None:
        if call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            refused.set()

    for call in calls:
        call.add_callback(partial(note, call))
    assert refused.wait(LONG), "a caller may have eight of a kind"
    message = refusal(network)
    assert message == "127.0.0.1: it has 8 Watch calls already, as many as it may have at a time"
    assert ask_at(network.place) == {"generation": 1}
    echo(network, hosts[1], 1)
    for call in calls:
        call.cancel()
    stranger.channel.close()
    network.close()
