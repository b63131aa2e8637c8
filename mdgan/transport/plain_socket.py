"""Carries messages between the server and a host of its machine over a Unix socket of that host.

gRPC admits the host and reports an end that hangs; its stream carries no message after the welcome.
"""

import contextlib
import hmac
import os
import re
import secrets
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mdgan.system import QUIETLY, peer_user
from mdgan.transport import streams
from mdgan.transport.frames import (
    PIECE_BYTES,
    CutOff,
    Frame,
    Most,
    WireError,
    check_expected,
    check_head,
)

_HEADER = struct.Struct("<16sqQQ")
"""Kind, iteration, size of the body in bytes, and taker; see `Frame`."""
_GOODBYE = _HEADER.pack(b"", 0, 0, 0)
_NAME = re.compile("m[0-9]{1,9}")
_ROOT = 0
_SENT_BYTES = 1 << 20
"""How much the kernel is asked to hold for a peer, so that the sending thread need not wait."""


class Door:
    """A listening socket for one host that gRPC has admitted, beside a gRPC socket.

    Args:
        place: the gRPC socket, `unix:` and a path in a private folder.
        number: names the door; no two open doors may have the same.
    """

    def __init__(self, place: str, number: int) -> None:
        name = f"m{number}"
        self._path = _folder(place) / name
        self._key = secrets.token_hex(16)
        self.told = {"name": name, "key": self._key}  # the server sends it to the host alone
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._path))
        self._listening.listen(1)

    def take(self, seconds: float) -> "PlainSocket":
        """Waits until the host connects and shows the key.

        Raises:
            WireError: the host did not connect in time, or another process did.
        """
        try:
            self._listening.settimeout(seconds)
            connection, _ = self._listening.accept()
            with contextlib.ExitStack() as closing:
                closing.callback(connection.close)
                connection.settimeout(seconds)
                shown = connection.recv(len(self._key))
                has_key = hmac.compare_digest(shown, self._key.encode())
                if not has_key or peer_user(connection) not in (_ROOT, os.geteuid()):
                    raise WireError("another process came to its socket")
                closing.pop_all()
            return PlainSocket(connection)
        except OSError as error:
            raise WireError("it did not come to its socket") from error

    def wake(self) -> None:
        """Ends the wait in `take`, by a connection without the key."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as visit:
            visit.setblocking(False)
            visit.connect(str(self._path))

    def close(self) -> None:
        """Stops listening, and removes the socket."""
        self._path.unlink(missing_ok=True)
        self._listening.close()


def knock(place: str, told: Any, seconds: float) -> "PlainSocket":
    """Connects a host to the door that the server has opened for it.

    Args:
        place: the server's gRPC socket.
        told: `Door.told`, from the server's welcome.

    Raises:
        WireError: `told` names no door, or this process cannot connect to it.
    """
    if not isinstance(told, dict) or not _NAME.fullmatch(str(told.get("name"))):
        raise WireError("it names no socket for messages")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(str(_folder(place) / told["name"]))
        if peer_user(connection) not in (_ROOT, os.geteuid()):
            raise PermissionError("another user listens there")
        connection.sendall(str(told.get("key")).encode(), QUIETLY)
    except (OSError, UnicodeError) as error:
        connection.close()
        raise WireError("its socket for messages is not there") from error
    return PlainSocket(connection)


class PlainSocket:
    """One end of a connection. Any thread may `put`; one reads, and one runs `send_waiting`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
        self._socket = connection
        self._changed = threading.Condition()  # guards everything below
        self._waiting: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._ended = False
        self._in_use = 2

    def put(self, frame: Frame) -> bool:
        """Sends a message without waiting; False if the peer is lost or reads too slowly."""
        kind, body = frame.kind.encode(), memoryview(frame.body)
        parts = memoryview(_HEADER.pack(kind, frame.iteration, len(body), frame.taker)), body
        with self._changed:
            if self._ended or self._unsent_bytes > streams.MOST_UNSENT_BYTES:
                return False
            sent = 0
            if not self._waiting:
                try:
                    sent = self._socket.sendmsg(parts, (), socket.MSG_DONTWAIT | QUIETLY)
                except BlockingIOError:
                    pass
                except OSError:
                    return False
            for part in parts:
                if rest := part[sent:]:
                    self._waiting.append(rest)
                    self._unsent_bytes += len(rest)
                sent = max(0, sent - len(part))
            if self._waiting:
                self._changed.notify()
        return True

    def end(self) -> None:
        """Refuses further messages; `send_waiting` sends those that wait, and a goodbye."""
        with self._changed:
            if not self._ended:
                self._ended = True
                self._waiting.append(memoryview(_GOODBYE))
                self._changed.notify()

    def cut(self) -> None:
        """Ends the connection at once; `frames` can still read what has arrived."""
        with self._changed, contextlib.suppress(OSError):
            self._ended = True
            self._waiting.clear()
            self._changed.notify()
            self._socket.shutdown(socket.SHUT_RDWR)

    def pieces(self) -> Iterator[bytes]:
        """Runs `send_waiting` in gRPC's thread; yields nothing, as gRPC has nothing to send."""
        self.send_waiting()
        yield from ()

    def send_waiting(self) -> None:
        """Sends the parts that `put` could not send at once, until `end` or `cut`."""
        with contextlib.suppress(OSError):
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._ended)
                    if not self._waiting:
                        break
                    part = self._waiting[0]
                self._socket.sendall(part, QUIETLY)
                with self._changed:
                    if self._waiting:  # unless it was cut meanwhile
                        self._unsent_bytes -= len(self._waiting.popleft())
        self._leave()

    def frames(self, accepts: Mapping[str, Most]) -> Iterator[Frame]:
        """Yields all messages until the peer says goodbye; raises as `frames.next_frame` does."""
        try:
            while (frame := self._next_frame(accepts)) is not None:
                yield frame
        finally:
            self._leave()

    def _next_frame(self, accepts: Mapping[str, Most]) -> Frame | None:
        header = self._read(bytearray(_HEADER.size))
        if header == _GOODBYE:
            return None
        name, iteration, size, taker = _HEADER.unpack(header)
        kind = name.rstrip(b"\0").decode("latin-1")
        most = check_expected(kind, size, accepts)
        body = self._read(bytearray(min(size, PIECE_BYTES)))
        check_head(kind, body, most)
        # Memory is taken in steps: each at most as large as the part that has arrived.
        while len(body) < size:
            body += self._read(bytearray(min(size - len(body), len(body))))
        return Frame(kind, iteration, bytes(body), taker=taker)

    def _read(self, into: bytearray) -> bytearray:
        try:
            num_bytes = self._socket.recv_into(into, 0, socket.MSG_WAITALL) if into else 0
        except OSError as error:
            raise CutOff("its connection closed") from error
        if num_bytes < len(into):
            raise CutOff("its connection closed")
        return into

    def _leave(self) -> None:
        """Counts a thread that is done with the socket; the second one closes it."""
        with self._changed:
            self._in_use -= 1
            if not self._in_use:
                self._ended = True
                self._socket.close()


def _folder(place: str) -> Path:
    return Path(place.removeprefix("unix:")).parent
