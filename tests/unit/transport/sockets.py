"""Bare connections for tests: pairs, strangers that misbehave, processes at the other end."""

import contextlib
import os
import signal
import socket
import warnings
import zlib
from collections.abc import Callable, Iterator

from mdgan.transport.handshake import as_client
from mdgan.transport.link import Link

from mdgan.messages import Message
from mdgan.transport import wire
from mdgan.transport.until import Until
from tests.unit.transport.networks import ACCEPTS, LONG

Address = tuple[str, int]


def connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def let_in(address: Address, token: bytes) -> socket.socket:
    """A connection that has proved that it knows the token, and says what the test wants."""
    connection = socket.create_connection(address)
    try:
        as_client(connection, token, Until(LONG))
    except BaseException:
        connection.close()
        raise
    connection.settimeout(LONG)
    return connection


def is_closed(connection: socket.socket, seconds: float = LONG) -> bool:
    """Whether the other end closes in time, whatever it sends before."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def raw(message: Message) -> bytes:
    header, body = wire.encode(message)
    return bytes(header.numpy().data) + bytes(body.numpy().data)


def announce(kind: str, body_bytes: int) -> bytes:
    """A header that is right in itself, whatever it announces."""
    packed = wire._HEADER.pack(wire._MAGIC, kind.encode(), 1, 16, body_bytes, 0)
    return packed + wire._HEADER_CHECKSUM.pack(zlib.crc32(packed))


@contextlib.contextmanager
def in_child(act: Callable[[], None]) -> Iterator[int]:
    """A fork of this process that does something until it is killed; gives its number."""
    with warnings.catch_warnings():
        # The threads that may be there hold no lock that the child needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def linked(
    liveness_seconds: float = 30.0, accepts: dict[str, int] = ACCEPTS
) -> Iterator[tuple[Link, socket.socket]]:
    """A link, and the bare other end of it."""
    ours, theirs = connected()
    link = Link(ours, accepts, liveness_seconds)
    try:
        yield link, theirs
    finally:
        link.close()
        theirs.close()
