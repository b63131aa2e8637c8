"""The tunnel delivers what was put in, whatever the channel and the other end do."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgspec
import pytest

from mdgan.nvflare.tunnel import WINDOW_BYTES, TunnelPiece
from tests.unit.nvflare.channel import FakeCells

SECONDS = 30.0
NAME = "a" * 32


@contextmanager
def tunnel(cells: FakeCells) -> Iterator[tuple[socket.socket, int]]:
    """A server's listening socket, and the port at a site that leads there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        far = cells.relay("server", server.getsockname())
        near = cells.relay("site")
        cells.relay("evil")  # which can be reached
        yield server, near.listen("server")
        near.close()
        far.close()


@contextmanager
def connection(server: socket.socket, port: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    near = socket.create_connection(("127.0.0.1", port), SECONDS)
    with near as client, server.accept()[0] as accepted:
        accepted.settimeout(SECONDS)
        yield client, accepted


def read(end: socket.socket, number: int) -> bytes:
    result = bytearray()
    while len(result) < number and (data := end.recv(1 << 16)):
        result += data
    return bytes(result)


def carries(client: socket.socket, accepted: socket.socket) -> bool:
    client.sendall(b"well")
    return read(accepted, 4) == b"well"


def is_closed(end: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        return end.recv(1) == b""
    return True


def sent(*fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


def test_bytes_arrive_in_order_both_ways_though_messages_overtake() -> None:
    there = bytes(range(256)) * (3 * WINDOW_BYTES // 256)
    back = there[::-1]
    with (
        tunnel(FakeCells()) as (server, port),
        connection(server, port) as (client, accepted),
        ThreadPoolExecutor() as threads,
    ):
        threads.submit(client.sendall, there)
        threads.submit(accepted.sendall, back)
        came_back = threads.submit(read, client, len(back))
        assert read(accepted, len(there)) == there
        assert came_back.result(SECONDS) == back


def test_a_reader_that_waits_holds_the_writer_back() -> None:
    cells = FakeCells()
    with tunnel(cells) as (server, port), connection(server, port) as (client, accepted):
        client.settimeout(1)
        written = 0
        with suppress(TimeoutError):
            while written < 10 * WINDOW_BYTES:
                written += client.send(bytes(1 << 16))
        pieces = [msgspec.msgpack.decode(each, type=TunnelPiece) for each in cells.carried]
        carried = sum(len(piece.data) for piece in pieces)
        assert carried < WINDOW_BYTES + (1 << 23)  # and what the system's sockets hold
        assert len(read(accepted, written)) == written


def test_a_close_reaches_the_other_end_after_the_last_byte() -> None:
    with tunnel(FakeCells()) as (server, port):
        for number in range(140):  # more than may be open at a time
            with connection(server, port) as ends:
                first, other = ends if number % 2 else reversed(ends)
                first.sendall(b"x" * 100_000)
                first.close()
                assert read(other, 100_000) == b"x" * 100_000
                assert is_closed(other)


def test_without_a_server_the_connection_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = free.getsockname()
    cells = FakeCells()
    cells.relay("server", place)
    for peer in ("server", "nobody"):
        near = cells.relay("site")
        with socket.create_connection(("127.0.0.1", near.listen(peer)), SECONDS) as client:
            assert is_closed(client)
        near.close()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff" * 100,
        sent("data", NAME, 0),
        sent("data", NAME, 1 << 40, b"x"),
        sent("data", NAME, 0, bytes(1 << 19)),
        sent("data", NAME, "0", b"x"),
        sent("room", NAME, 1),
        sent("end", NAME, 0, b"x"),
        sent("connect", NAME, 0),
        msgspec.msgpack.encode({"kind": "open", "link": NAME}),
    ],
)
def test_a_message_that_breaks_a_rule_ends_its_own_connection_at_most(message: bytes) -> None:
    cells = FakeCells()
    with tunnel(cells) as (server, port), connection(server, port) as (client, accepted):
        cells.relays["server"].take("evil", sent("open", NAME))
        cells.relays["server"].take("evil", message)
        cells.relays["site"].take("server", sent("open", NAME))  # a site opens none
        cells.relays["site"].take("server", message)
        assert carries(client, accepted)


def test_a_peer_that_sends_more_than_may_wait_loses_its_connection() -> None:
    cells = FakeCells()
    with tunnel(cells) as (server, _):
        far = cells.relays["server"]
        far.take("evil", sent("open", NAME))
        with server.accept()[0] as accepted:
            accepted.settimeout(SECONDS)
            for number in range(1, 40):  # the first piece never comes
                far.take("evil", sent("data", NAME, number, bytes(1 << 18)))
            assert is_closed(accepted)


def test_a_peer_opens_so_many_connections_and_no_more() -> None:
    cells = FakeCells()
    with tunnel(cells) as (server, port):
        for number in range(200):
            cells.relays["server"].take("evil", sent("open", f"{number:032}"))
        server.settimeout(2)
        with ExitStack() as kept, suppress(TimeoutError):
            for _ in range(200):
                kept.enter_context(server.accept()[0])
            pytest.fail("all were let in")
        server.settimeout(SECONDS)
        with connection(server, port) as (client, accepted):  # others are let in
            assert carries(client, accepted)


def test_a_peer_cannot_write_into_the_connection_of_another() -> None:
    cells = FakeCells()
    with tunnel(cells) as (server, port), connection(server, port) as (client, accepted):
        link = msgspec.msgpack.decode(cells.carried[0], type=TunnelPiece).link
        cells.relays["server"].take("evil", sent("data", link, 0, b"evil"))
        cells.relays["server"].take("evil", sent("end", link, 0))
        assert carries(client, accepted)
