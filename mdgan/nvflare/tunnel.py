"""Carries TCP connections over a channel of messages that may arrive in another order.

The connections are TLS between mdgan's processes: the channel's owner can cut one, but can neither
read nor change the bytes. A relay at a site listens on loopback. The relay beside rank 0 connects
to rank 0 alone, whatever the messages say.
"""

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

WINDOW_BYTES = 1 << 23  # most bytes that one end has sent and the other has not yet passed on
_PIECE_BYTES = 1 << 18
_ROOM_BYTES = WINDOW_BYTES // 4  # after passing on this many, an end reports it by `room`
_MOST_EARLY = 1 << 16  # most pieces that wait for an earlier one
_MOST_LINKS = 64  # most connections of one peer
_CONNECT_SECONDS = 10.0


class TunnelPiece(msgspec.Struct, frozen=True, array_like=True):
    """One message about the connection that `link` names.

    `number` counts the pieces of kinds `data` and `end` from 0 on. In kind `room` it is how many
    bytes the sender has passed on in all; the first, with 0 bytes, confirms `open`.
    """

    kind: Literal["open", "data", "room", "end"]
    link: Annotated[str, Meta(min_length=32, max_length=32)]
    number: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    data: Annotated[bytes, Meta(max_length=_PIECE_BYTES)] = b""


Send = Callable[[str, bytes], bool]
"""Sends a message to a peer; False if the peer cannot be reached."""


class _TunnelLink:
    """One end of a connection: one thread reads its socket, another writes to it."""

    def __init__(self, end: socket.socket, name: str, send: Callable[[TunnelPiece], bool]) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._name, self._send = end, name, send
        self._changed = threading.Condition()
        self._early: dict[int, TunnelPiece] = {}  # by number, pieces to write to the socket
        self._waiting_bytes = 0  # in `_early`, or being written
        self._next = 0  # the number of the piece to write next
        self._sent_bytes = 0
        self._room_bytes = -WINDOW_BYTES  # that the other end has passed on; below 0: not open yet
        self._is_closed = False
        self._num_ended = 0  # how many of the two threads have ended

    def start(self, forget: Callable[[], object], *, is_open: bool) -> None:
        """Starts the two threads; each calls `forget` when the connection is over."""
        self._room_bytes = 0 if is_open else self._room_bytes

        def run(carry: Callable[[], None]) -> None:
            with contextlib.suppress(OSError):
                carry()
            self.close()
            forget()
            with self._changed:
                self._num_ended += 1
                if self._num_ended == len(both):  # the other thread may still use the file number
                    self._socket.close()

        both = self._read, self._write
        for carry in both:
            threading.Thread(target=run, args=(carry,), daemon=True).start()

    def take(self, piece: TunnelPiece) -> None:
        """Takes a piece of the other end; closes the connection if the piece breaks a rule."""
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
        """Ends the connection, and so the other end's; calling it again does nothing."""
        with self._changed:
            self._is_closed = True
            self._early.clear()
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        """Reads the socket and sends pieces, no faster than the other end passes them on."""
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
        """Writes the other end's pieces to the socket, in order."""
        passed_bytes = reported_bytes = 0
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
            if passed_bytes - reported_bytes >= _ROOM_BYTES:
                reported_bytes = passed_bytes
                self._send(TunnelPiece("room", self._name, reported_bytes))


class Relay:
    """All connections at one end of the channel.

    Args:
        send: sends a message to a peer.
        connects_to: the address that peers may open connections to; None if they may open none.
    """

    def __init__(self, send: Send, connects_to: tuple[str, int] | None = None) -> None:
        self._send, self._connects_to = send, connects_to
        self._links: dict[tuple[str, str], _TunnelLink] = {}
        self._listener: socket.socket | None = None

    def listen(self, peer: str) -> int:
        """Listens on loopback, and carries every connection to a peer; returns the port."""
        listener = self._listener = socket.create_server(("127.0.0.1", 0))

        def accept() -> None:
            with contextlib.suppress(OSError):  # `close` has closed the listener
                while True:
                    self._begin(listener.accept()[0], peer, TunnelPiece("open", uuid.uuid4().hex))

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    def take(self, peer: str, message: bytes) -> None:
        """Takes a message of a peer; ignores it if it makes no sense."""
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
        """Stops listening, and ends all connections."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for link in list(self._links.values()):
            link.close()

    def _open(self, place: tuple[str, int], peer: str, name: str) -> None:
        try:
            if sum(owner == peer for owner, _ in list(self._links)) >= _MOST_LINKS:
                raise OSError("too many connections")
            end = socket.create_connection(place, _CONNECT_SECONDS)
        except OSError:
            self._tell(peer, TunnelPiece("end", name))  # rank 0 does not listen, or no more
            return
        end.settimeout(None)
        self._begin(end, peer, TunnelPiece("room", name))

    def _begin(self, end: socket.socket, peer: str, first: TunnelPiece) -> None:
        """Starts to carry a connection; `first` tells the peer that it is open."""
        name = first.link
        link = _TunnelLink(end, name, lambda piece: self._tell(peer, piece))
        self._links[peer, name] = link
        link.start(lambda: self._links.pop((peer, name), None), is_open=first.kind == "room")
        if not self._tell(peer, first):
            link.close()

    def _tell(self, peer: str, piece: TunnelPiece) -> bool:
        return self._send(peer, msgspec.msgpack.encode(piece))
