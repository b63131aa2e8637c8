"""Passes bytes between two sockets as they are, and holds few of them."""

import asyncio
import socket
from collections.abc import Callable
from math import inf

_LAST_SECONDS = 5.0  # how long an end that takes nothing in is kept when the other one is gone


class End(asyncio.Protocol):
    """One of two sockets: what comes here is written to the other one, no faster than it takes it.

    Args:
        most_bytes: that may come here; see `allow`.
        on_end: called when the socket is gone.
    """

    def __init__(self, most_bytes: float, on_end: Callable[[], None]) -> None:
        self._left, self._on_end = most_bytes, on_end
        self._is_full = False
        self._other = self
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reads nothing before the other socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Writes it to the other socket."""
        self._left -= len(data)
        if self._left <= 0:
            self._transport.pause_reading()
        self._other._transport.write(data)

    def pause_writing(self) -> None:
        """This socket takes in no more."""
        self._is_full = True
        self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        """This socket takes more in."""
        self._is_full = False
        self._other.allow(self._other._left)

    def allow(self, most_bytes: float) -> None:
        """So many bytes more may come here."""
        self._left = most_bytes
        if most_bytes <= 0:
            self._transport.pause_reading()
        elif not self._other._is_full:
            self._transport.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The other socket gets what waits for it; then it is closed, too."""
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
    said: bytes,
    most_bytes: float,
    on_end: Callable[[], None],
) -> End:
    """Passes bytes between a client and a server from now on.

    Args:
        said: what the client has said already.
        most_bytes: that may come from the client; see `End.allow`.
        on_end: called for each of the two when it is gone.

    Returns:
        The client's end.
    """
    first, second = End(most_bytes, on_end), End(inf, on_end)
    first._other, second._other = second, first
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: first, sock=client)
    await loop.create_connection(lambda: second, sock=server)
    second._transport.write(said)
    for end in (first, second):
        end.allow(end._left)
    return first
