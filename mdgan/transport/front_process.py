"""The front: a small process that accepts connections before they reach a gRPC server.

It shields the process that trains from strangers, that is, connections on which the server has
admitted no call yet. A stranger waits here until the first bytes of its handshake have come, and
until its turn. Then the front passes bytes unchanged between the client and the server's Unix
socket: TLS ends in the server. The server orders by the standard input which connections stay,
`let NAME`, and which end, `end NAME`. A name is the client's address and port; the front binds its
socket to the server to that name, so that the server sees it.

`front.Front` starts this process in the folder of the server's socket. The process imports the
standard library and `tunnel` alone, and ends when its standard input does.
"""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import struct
import time
from collections import Counter, OrderedDict
from math import inf
from pathlib import Path
from typing import Any

from mdgan.transport.tunnel import End, join

SERVER = "server"  # the name of the server's socket
MOST_STRANGERS = 256
"""Strangers at a time; beyond, the address with the most of them loses its oldest."""
_MOST_TRYING = 64  # strangers at a time that have been handed to the server
_FAILURES_A_SECOND, _FAILURES_IN_A_ROW = 50.0, 100.0
"""How often strangers reach the server for nothing: each costs the server a TLS handshake."""
_PATIENCE_SECONDS = 5.0
"""How long a stranger may take to begin and to get its turn; then as long again for a call."""
_IMPATIENCE_SECONDS = 1.0  # how long it may take for a call while others wait for their turn
_BLOCKED_SECONDS = 2.0
"""After `end`, strangers from the same address get no turn for this long."""
_LAST_WORDS_SECONDS = 0.3
"""How long the server's last bytes have to reach a caller that the server ends."""
_LAST_SECONDS = 1.0  # the same for all callers, when the server itself ends
_STRANGER_BYTES = 1 << 16  # the most that a stranger may send
_MOST_ADDRESSES = 4096
_ACCEPTS_AT_ONCE = 32
_LOOK_SECONDS = 0.25
_MOST_FILES, _SPARE_FILES = 1 << 14, 256
"""How many files a process opens at most, and how many of them it keeps for other uses."""
_TLS, _HEADER_BYTES, _MOST_RECORD_BYTES = b"\x16", 5, 1 << 14
_PLAIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SITE_BYTES = 8
_RESET = struct.pack("ii", 1, 0)


class _Address:
    """Whether the server has let a call from an address in, and when it last had a turn."""

    is_known = False
    tried = blocked_until = 0.0


class _Caller:
    """A client's connection, the address it comes from, and the first bytes that it sent."""

    def __init__(self, client: socket.socket, place: tuple[Any, ...]) -> None:
        client.setblocking(False)
        address, port = place[0].partition("%")[0].removeprefix("::ffff:"), place[1]
        is_old = "." in address
        self.socket = client
        self.name = f"{address}:{port}" if is_old else f"[{address}]:{port}"
        self.site = address if is_old else socket.inet_pton(socket.AF_INET6, address)[:_SITE_BYTES]
        self.since = time.monotonic()
        self.said = b""
        self.end: End | None = None

    def read_more(self) -> bool:
        """Reads bytes that have come; False if the connection is over, or not a gRPC client's."""
        try:
            more = self.socket.recv(_HEADER_BYTES + _MOST_RECORD_BYTES - len(self.said))
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.said += more
        begins_well = self.said[:1] == _TLS or _PLAIN.startswith(self.said[: len(_PLAIN)])
        return bool(more) and begins_well

    def has_begun(self) -> bool:
        """Whether a whole TLS `ClientHello` has come, or the preface of HTTP/2 without TLS."""
        if self.said[:1] != _TLS:
            return self.said.startswith(_PLAIN)
        needed = _HEADER_BYTES + int.from_bytes(self.said[3:_HEADER_BYTES], "big")
        return len(self.said) >= min(needed, _MOST_RECORD_BYTES) > _HEADER_BYTES

    def cut(self) -> None:
        """Ends the connection at once by a reset."""
        if self.end is not None:
            self.end.abort()
            return
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.socket.close()


class FrontProcess:
    """Moves each caller from waiting over trying to known; see the module.

    Args:
        listening: the socket at which clients connect.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._orders = b""
        self._server_lost = self._loop.create_future()
        # Callers by name, the oldest first: without a turn yet, handed to the server, let in there.
        self._waiting, self._trying, self._known = (dict[str, _Caller]() for _ in range(3))
        self._addresses: OrderedDict[str | bytes, _Address] = OrderedDict()
        self._failures, self._counted = _FAILURES_IN_A_ROW, time.monotonic()
        self._most_callers = most_connections() // 2  # each caller takes two open files

    async def run(self) -> None:
        """Passes connections on until the server is lost, then its last bytes for a moment."""
        self._loop.add_reader(self._listening, self._accept)
        self._loop.add_reader(0, self._obey)
        self._look()
        await self._server_lost
        self._loop.remove_reader(self._listening)
        until = time.monotonic() + _LAST_SECONDS
        while (self._trying or self._known) and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS / 10)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                client, place = self._listening.accept()
            except OSError:
                break
            caller = _Caller(client, place)
            # Most connections of a flood are over before they are accepted, and end here.
            if not caller.read_more() or not self._has_room(caller):
                caller.cut()
                continue
            self._waiting[caller.name] = caller
            if not caller.has_begun():
                self._loop.add_reader(client, self._hear, caller)
        self._hand_over()

    def _hear(self, caller: _Caller) -> None:
        if not caller.read_more():
            del self._waiting[caller.name]
            caller.cut()
        elif caller.has_begun():
            self._loop.remove_reader(caller.socket)
            self._hand_over()

    def _has_room(self, caller: _Caller) -> bool:
        """Whether a stranger may wait; if need be, ends one of the address with the most."""
        if len(self._waiting) + len(self._trying) + len(self._known) >= self._most_callers:
            return False
        if len(self._waiting) + _MOST_TRYING < MOST_STRANGERS:
            return True
        count_by_site = Counter(other.site for other in self._waiting.values())
        ((site, count),) = count_by_site.most_common(1)
        if count_by_site[caller.site] >= count:
            return False
        oldest = next(other for other in self._waiting.values() if other.site == site)
        self._waiting.pop(oldest.name).cut()
        return True

    def _hand_over(self) -> None:
        """Hands strangers to the server, as many as its limits allow."""
        now = time.monotonic()
        gained = (now - self._counted) * _FAILURES_A_SECOND
        self._failures, self._counted = min(_FAILURES_IN_A_ROW, self._failures + gained), now
        while self._failures >= 1 and len(self._trying) < _MOST_TRYING:
            ready = [
                other
                for other in self._waiting.values()
                if other.has_begun() and self._address(other).blocked_until <= now
            ]
            if not ready:
                break
            caller = min(ready, key=self._turn)
            del self._waiting[caller.name]
            if not caller.read_more() or not (server := _to_server(caller.name)):
                caller.cut()
                continue
            self._failures -= 1
            self._address(caller).tried = caller.since = now
            self._trying[caller.name] = caller
            self._loop.create_task(self._join(caller, server))

    def _turn(self, caller: _Caller) -> tuple[bool, float]:
        """Sorts callers: known addresses first, then those whose last turn is longest ago."""
        address = self._address(caller)
        return not address.is_known, address.tried

    async def _join(self, caller: _Caller, server: socket.socket) -> None:
        def forget() -> None:
            for callers in (self._trying, self._known):
                if callers.get(caller.name) is caller:
                    del callers[caller.name]

        client = caller.socket
        caller.end = await join(
            client, server, caller.said, most_bytes=_STRANGER_BYTES, on_end=forget
        )
        caller.said = b""

    def _obey(self) -> None:
        """Reads the server's orders and follows them; their end means that the server is lost."""
        data = os.read(0, 1 << 16)
        if not data:
            self._server_lost.set_result(None)
            self._loop.remove_reader(0)
        *orders, self._orders = (self._orders + data).split(b"\n")
        for order in orders:
            verb, _, name = order.decode().partition(" ")
            if verb == "let" and name in self._trying:
                self._let(self._trying.pop(name))
            elif verb == "end":
                caller = self._trying.pop(name, None) or self._known.pop(name, None)
                if caller is not None:
                    self._send_away(caller)

    def _let(self, caller: _Caller) -> None:
        self._known[caller.name] = caller
        self._failures += 1
        self._address(caller).is_known = True
        assert caller.end is not None
        caller.end.allow(inf)

    def _send_away(self, caller: _Caller) -> None:
        assert caller.end is not None
        caller.end.allow(0)
        self._loop.call_later(_LAST_WORDS_SECONDS, caller.cut)
        address = self._address(caller)
        address.is_known, address.blocked_until = False, time.monotonic() + _BLOCKED_SECONDS

    def _look(self) -> None:
        """Ends strangers whose time is up, and hands others over; calls itself again later."""
        now = time.monotonic()
        for_a_call = _IMPATIENCE_SECONDS if self._waiting else _PATIENCE_SECONDS
        for callers, patience in ((self._waiting, _PATIENCE_SECONDS), (self._trying, for_a_call)):
            for caller in [*callers.values()]:
                if now - caller.since > patience:
                    callers.pop(caller.name).cut()
        self._hand_over()
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def _address(self, caller: _Caller) -> _Address:
        address = self._addresses.setdefault(caller.site, _Address())
        self._addresses.move_to_end(caller.site)
        if len(self._addresses) > _MOST_ADDRESSES:
            strangers = (site for site, other in self._addresses.items() if not other.is_known)
            self._addresses.pop(next(strangers, next(iter(self._addresses))))
        return address


def _to_server(name: str) -> socket.socket | None:
    """Connects to the server from a socket with a client's name; None if the server refuses."""
    server = socket.socket(socket.AF_UNIX)
    server.setblocking(False)
    try:
        server.bind(name)
        Path(name).unlink()
        server.connect(SERVER)
    except OSError:
        server.close()
        return None
    return server


def most_connections() -> int:
    """How many connections clients may hold, so that this process can still open other files.

    First raises this process's limit of open files as far as the system allows it.
    """
    limit, most = (
        _MOST_FILES if value == resource.RLIM_INFINITY else value
        for value in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    if limit < (wanted := min(most, _MOST_FILES)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            limit = wanted
    return max(min(limit, _MOST_FILES) - _SPARE_FILES, limit // 2)


async def _run(listening: int) -> None:
    await FrontProcess(socket.socket(fileno=listening)).run()


def main(listening: int, folder: str) -> None:
    """Runs the front.

    Args:
        listening: the file number of the socket at which clients connect.
        folder: the folder of the server's socket; the front removes it at the end.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # this process ends with the server
    logging.disable()  # asyncio would log connections that clients have dropped
    os.chdir(folder)
    asyncio.run(_run(listening))
    with contextlib.suppress(OSError):
        Path(SERVER).unlink(missing_ok=True)
        Path(folder).rmdir()
