"""Carries the bytes of TCP connections through a channel of messages, which may overtake another.

What is carried is TLS between mdgan's own processes: the owner of the channel can cut a connection,
and neither read nor change what passes. A relay at a site listens on loopback; the one beside
rank 0 connects to that alone, whatever the messages say.
"""

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

WINDOW_BYTES = 1 << 23  # that one end may have sent and the other has not passed on
_PIECE_BYTES = 1 << 18
_ROOM_BYTES = WINDOW_BYTES // 4  # passed on before the other end is told so
_MOST_EARLY = 1 << 16  # pieces that wait for one before them
_MOST_LINKS = 64  # of one peer
_CONNECT_SECONDS = 10.0


class TunnelPiece(msgspec.Struct, frozen=True, array_like=True):
    """One message about a connection, which `link` names.

    `number` counts the pieces of `data` and `end` from 0 on; of `room` it is how many bytes were
    passed on in all. The first `room`, of 0 bytes, says that the connection is open.
    """

    kind: Literal["open", "data", "room", "end"]
    link: Annotated[str, Meta(min_length=32, max_length=32)]
    number: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    data: Annotated[bytes, Meta(max_length=_PIECE_BYTES)] = b""


Send = Callable[[str, bytes], bool]
"""Sends a message to a peer; False if that cannot be reached."""


class _TunnelLink:
    """One connection: a thread reads its socket, and another one writes to it."""

    def __init__(self, end: socket.socket, name: str, send: Callable[[TunnelPiece], bool]) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._name, self._send = end, name, send
        self._changed = threading.Condition()
        self._early: dict[int, TunnelPiece] = {}  # by number, what waits to be passed on
        self._waiting_bytes = 0  # of these
        self._next = 0  # the number of the piece to pass on
        self._sent_bytes = 0
        self._room_bytes = -WINDOW_BYTES  # passed on by the other end; below 0 it is not open yet
        self._is_closed = False
        self._num_ended = 0  # of the two threads

    def start(self, forget: Callable[[], object], *, is_open: bool) -> None:
        """Begins to carry bytes both ways; `forget` is called when that is over."""
        self._room_bytes = 0 if is_open else self._room_bytes

        def run(carry: Callable[[], None]) -> None:
            with contextlib.suppress(OSError):
                carry()
            self.close()
            forget()
            with self._changed:
                self._num_ended += 1
                if self._num_ended == len(both):  # else the other one could use a reused number
                    self._socket.close()

        both = self._read, self._write
        for carry in both:
            threading.Thread(target=run, args=(carry,), daemon=True).start()

    def take(self, piece: TunnelPiece) -> None:
        """Takes what the other end sent; closes the connection if that breaks a rule."""
        with self._changed:
            if piece.kind == "room":
                is_fit = piece.number <= self._sent_bytes
                self._room_bytes = max(self._room_bytes, piece.number)
            else:
                self._waiting_bytes += len(piece.data)
                is_fit = piece.number not in self._early
                is_fit &= self._next <= piece.number < self._next + _MOST_EARLY
                is_fit &= self._waiting_bytes <= WINDOW_BYTES
                is_fit &= bool(piece.data) == (piece.kind == "data")
                self._early[piece.number] = piece
            self._changed.notify_all()
        if not is_fit:
            self.close()

    def close(self) -> None:
        """Ends the connection at both ends; the second time does nothing."""
        with self._changed:
            self._is_closed = True
            self._early.clear()
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        """Sends what the socket brings, as long as the other end passes it on."""
        number, most = 0, WINDOW_BYTES - _PIECE_BYTES
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._is_closed or self._sent_bytes - self._room_bytes <= most
                    )
                data = self._socket.recv(_PIECE_BYTES)
                with self._changed:
                    self._sent_bytes += len(data)
                if not data or not self._send(TunnelPiece("data", self._name, number, data)):
                    return
                number += 1
        finally:
            self._send(TunnelPiece("end", self._name, number))

    def _write(self) -> None:
        """Writes what the other end sent to the socket, in order."""
        passed_bytes = told_bytes = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._next in self._early)
                piece = self._early.pop(self._next, None)
                self._next += 1
            if piece is None or piece.kind == "end":
                return
            self._socket.sendall(piece.data)
            passed_bytes += len(piece.data)
            with self._changed:
                self._waiting_bytes -= len(piece.data)
            if passed_bytes - told_bytes >= _ROOM_BYTES:
                told_bytes = passed_bytes
                self._send(TunnelPiece("room", self._name, told_bytes))


class Relay:
    """All connections of one end.

    Args:
        send: sends a message to a peer.
        connects_to: where connections go that peers open; None if they may open none.
    """

    def __init__(self, send: Send, connects_to: tuple[str, int] | None = None) -> None:
        self._send, self._connects_to = send, connects_to
        self._links: dict[tuple[str, str], _TunnelLink] = {}
        self._listener: socket.socket | None = None

    def listen(self, peer: str) -> int:
        """Listens on loopback for connections to a peer; returns the port."""
        listener = self._listener = socket.create_server(("127.0.0.1", 0))

        def accept() -> None:
            with contextlib.suppress(OSError):  # it is closed
                while True:
                    self._begin(listener.accept()[0], peer, TunnelPiece("open", uuid.uuid4().hex))

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    def take(self, peer: str, message: bytes) -> None:
        """Takes what a peer sent; what makes no sense is not answered."""
        try:
            piece = msgspec.msgpack.decode(message, type=TunnelPiece)
        except msgspec.MsgspecError:
            return
        link = self._links.get((peer, piece.link))
        if link is not None and piece.kind != "open":
            link.take(piece)
        elif link is None and piece.kind == "open" and self._connects_to is not None:
            self._open(self._connects_to, peer, piece.link)

    def close(self) -> None:
        """Ends everything."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for link in list(self._links.values()):
            link.close()

    def _open(self, place: tuple[str, int], peer: str, name: str) -> None:
        try:
            if sum(each == peer for each, _ in list(self._links)) >= _MOST_LINKS:
                raise OSError("too many connections")
            end = socket.create_connection(place, _CONNECT_SECONDS)
        except OSError:
            self._tell(peer, TunnelPiece("end", name))  # there is no server yet, or any more
            return
        end.settimeout(None)
        self._begin(end, peer, TunnelPiece("room", name))

    def _begin(self, end: socket.socket, peer: str, first: TunnelPiece) -> None:
        """Carries a connection, of which `first` tells the peer."""
        name = first.link
        link = _TunnelLink(end, name, lambda piece: self._tell(peer, piece))
        self._links[peer, name] = link
        link.start(lambda: self._links.pop((peer, name), None), is_open=first.kind == "room")
        if not self._tell(peer, first):
            link.close()

    def _tell(self, peer: str, piece: TunnelPiece) -> bool:
        return self._send(peer, msgspec.msgpack.encode(piece))
