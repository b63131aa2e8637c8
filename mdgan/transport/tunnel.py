"""Passes bytes unchanged between two sockets; reads one no faster than the other takes them."""

import asyncio
import socket
from collections.abc import Callable
from math import inf

_LAST_SECONDS = 5.0  # after one socket closes: how long the other has to take what waits for it


class End(asyncio.Protocol):
    """One of two sockets: bytes that come here are written to the other one.

    Args:
        most_bytes: how many bytes this socket may read; see `allow`.
        on_end: called when the socket has closed.
    """

    def __init__(self, most_bytes: float, on_end: Callable[[], None]) -> None:
        self._remaining_bytes, self._on_end = most_bytes, on_end
        self._is_full = False
        self._other = self
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pauses reading until the other socket is connected, too."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Writes the bytes to the other socket."""
        self._remaining_bytes -= len(data)
        if self._remaining_bytes <= 0:
            self._transport.pause_reading()
        self._other._transport.write(data)

    def pause_writing(self) -> None:
        """Stops reading the other socket, as this one is full."""
        self._is_full = True
        self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        """Reads the other socket again, as this one has room."""
        self._is_full = False
        self._other.allow(self._other._remaining_bytes)

    def allow(self, most_bytes: float) -> None:
        """Sets how many more bytes this socket may read; 0 or less stops it."""
        self._remaining_bytes = most_bytes
        if most_bytes <= 0:
            self._transport.pause_reading()
        elif not self._other._is_full:
            self._transport.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Closes the other socket, too, once it has taken the bytes that wait for it."""
        self._other._transport.close()
        asyncio.get_running_loop().call_later(_LAST_SECONDS, self._other._transport.abort)
        self._on_end()

    def abort(self) -> None:
        """Closes both sockets at once."""
        for end in (self, self._other):
            end._transport.abort()


async def join(
    client: socket.socket,
    server: socket.socket,
    first_bytes: bytes,
    most_bytes: float,
    on_end: Callable[[], None],
) -> End:
    """Passes bytes between a client and a server from now on.

    Args:
        first_bytes: the bytes that the client has already sent.
        most_bytes: how many more the client may send; see `End.allow`.
        on_end: called for each of the two sockets when it has closed.

    Returns:
        The client's end.
    """
    first, second = End(most_bytes, on_end), End(inf, on_end)
    first._other, second._other = second, first
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: first, sock=client)
    await loop.create_connection(lambda: second, sock=server)
    second._transport.write(first_bytes)
    for end in (first, second):
        end.allow(end._remaining_bytes)
    return first
