"""One link: a TCP connection that has been let in, on which messages go both ways."""

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from mdgan import messages
from mdgan.messages import Kind, Message
from mdgan.transport import wire
from mdgan.transport.until import Until

_ALWAYS: Mapping[str, int] = {Kind.PULSE: 256, Kind.BYE: 256}
_LOOKS = 8
"""The number of waits per liveness period: silence is noticed an eighth too late at most."""


class LinkBroken(RuntimeError):
    """The peer is gone; the text says in one line how that was seen."""


class Link:
    """Sends and receives messages to and from one peer. Any thread may send, one may receive.

    Args:
        connection: connected, let in; the link closes it.
        accepts: the kinds that may come, each with the most bytes of its body.
        liveness_seconds: after this much silence the peer counts as gone.
    """

    def __init__(
        self, connection: socket.socket, accepts: Mapping[str, int], liveness_seconds: float
    ) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._accepts = {**_ALWAYS, **accepts}
        self._liveness = liveness_seconds
        self._wait_seconds = 0.0
        self._changed = threading.Condition()  # guards everything below
        self._unsent: deque[memoryview] = deque()
        self._has_writer = False
        self._broken = ""
        self._closed = False
        self._ended = False
        self._users = 0
        self._last_sent = time.monotonic()

    def expect(self, accepts: Mapping[str, int]) -> None:
        """Accepts other kinds from here on."""
        self._accepts = {**_ALWAYS, **accepts}

    @property
    def is_open(self) -> bool:
        """Whether neither end has closed it, as far as this one knows."""
        return not (self._closed or self._broken)

    def send(self, message: Message) -> int:
        """Sends a copy of a message; what does not fit the connection's buffer is sent later.

        Returns:
            The bytes it takes.

        Raises:
            LinkBroken: the peer is gone.
        """
        return self.send_frame(wire.encode(message))

    def send_frame(self, frame: wire.Frame) -> int:
        """`send` of an encoded message, which must not change any more."""
        pieces = [part.numpy().data for part in frame]
        with self._changed:
            if self._ended or not self.is_open:
                raise LinkBroken(self._broken or "it is closed")
            self._last_sent = time.monotonic()
            if not self._unsent:
                pieces = self._send_what_fits(pieces)
            if pieces:
                self._unsent.extend(pieces)
                self._wake_writer()
        return sum(len(part) for part in frame)

    def pulse(self, after_seconds: float) -> None:
        """Tells the peer that this end is there, if nothing was sent for a while."""
        with self._changed:
            idle = not self._unsent and time.monotonic() - self._last_sent >= after_seconds
        if idle:
            with contextlib.suppress(LinkBroken):
                self.send(messages.pulse())

    def flush(self, timeout_seconds: float) -> bool:
        """Waits until everything is with the system; False if the time is up or the peer gone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unsent or not self.is_open, timeout_seconds)
            return not self._unsent and self.is_open

    def end(self, timeout_seconds: float) -> bool:
        """`flush`, then tells the peer that nothing more will come; receiving goes on.

        Returns:
            Whether everything has left.
        """
        flushed = self.flush(timeout_seconds)
        self._ended = True
        if flushed:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        return flushed

    def receive(self, until: Until | None = None) -> tuple[Message, int]:
        """Waits for the next message; pulses are not shown.

        Args:
            until: how long at most; None for as long as the peer lives.

        Returns:
            The message and the bytes it took.

        Raises:
            LinkBroken: the peer is gone or silent, the time is up, or this end is closed.
            WireError: it sent no message, or one that is not accepted.
            Interrupted: asked to stop.
        """
        with self._in_use():
            while True:
                packed = torch.empty(wire.HEADER_BYTES, dtype=torch.uint8)
                self._read_into(packed.numpy().data, until)
                header = wire.decode_header(packed, self._accepts)
                body = torch.empty(header.body_bytes, dtype=torch.uint8)
                self._read_into(body.numpy().data, until)
                message = wire.decode(header, body)
                if message.kind != Kind.PULSE:
                    return message, len(packed) + len(body)

    def wait_for_end(self, until: Until) -> None:
        """Receives what still comes until the peer has closed, too, or the time is up."""
        with contextlib.suppress(RuntimeError):
            while True:
                self.receive(until)

    def close(self) -> None:
        """Ends the link at once, also for a thread that is receiving; may be called again."""
        with self._changed:
            self._closed = True
            self._unsent.clear()
            self._changed.notify_all()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._close_if_unused()

    def _send_what_fits(self, pieces: list[memoryview]) -> list[memoryview]:
        try:
            while pieces:
                sent = self._socket.sendmsg(pieces, (), socket.MSG_DONTWAIT)
                while pieces and sent >= len(pieces[0]):
                    sent -= len(pieces.pop(0))
                if pieces:
                    pieces[0] = pieces[0][sent:]
        except BlockingIOError:
            return pieces
        except OSError as error:
            self._fail(_reason(error))
            raise LinkBroken(self._broken) from error
        return pieces

    def _wake_writer(self) -> None:
        if not self._has_writer:
            self._has_writer = True
            self._users += 1
            threading.Thread(target=self._write, name="link-writer", daemon=True).start()
        self._changed.notify_all()

    def _write(self) -> None:
        """Sends what did not fit at once, in order; ends when nothing was left for a while."""
        try:
            while True:
                with self._changed:
                    if not self._unsent and self.is_open:
                        self._changed.wait(self._liveness)
                    if not self._unsent or not self.is_open:
                        self._has_writer = False
                        return
                    piece = self._unsent[0]
                self._socket.sendall(piece)
                with self._changed:
                    if self._unsent:
                        self._unsent.popleft()
                    self._last_sent = time.monotonic()
                    self._changed.notify_all()
        except OSError as error:
            with self._changed:
                self._has_writer = False
                self._fail(_reason(error))
        finally:
            with self._changed:
                self._let_go()

    def _fail(self, reason: str) -> None:
        """Remembers why the link broke, and wakes the threads that receive or flush."""
        self._broken = self._broken or reason
        self._unsent.clear()
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read_into(self, space: memoryview, until: Until | None) -> None:
        """Fills a space; silence is counted in waits, so that a process that slept tries again."""
        done, quiet_seconds = 0, 0.0
        while done < len(space):
            wait = self._next_wait(until)
            try:
                received = self._socket.recv_into(space[done:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                quiet_seconds += wait
                if quiet_seconds >= self._liveness * (1 - 1e-9):
                    raise LinkBroken(f"silent for {self._liveness:g} s") from None
                continue
            except OSError as error:
                raise LinkBroken(self._broken or _reason(error)) from error
            if received == 0:
                raise LinkBroken(self._broken or "its connection closed")
            done, quiet_seconds = done + received, 0.0

    def _next_wait(self, until: Until | None) -> float:
        """Sets how long the system waits for the next bytes."""
        wait = self._liveness / _LOOKS
        if until is not None:
            try:
                wait = min(wait, until.slice())
            except TimeoutError as error:
                raise LinkBroken(str(error)) from error
        if wait != self._wait_seconds:
            self._wait_seconds = wait
            # Python's own timeout would make every send wait too.
            seconds, fraction = divmod(max(wait, 1e-3), 1)
            packed = struct.pack("ll", int(seconds), int(fraction * 1e6))
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
            except OSError as error:
                raise LinkBroken(self._broken or _reason(error)) from error
        return wait

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """If the socket were closed under a thread that reads, it might read another connection."""
        with self._changed:
            if self._closed:
                raise LinkBroken("it is closed")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._let_go()

    def _let_go(self) -> None:
        self._users -= 1
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._closed and self._users == 0:
            self._socket.close()


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionError):
        return "its connection closed"
    return error.strerror or type(error).__name__


_SHARE = 8
_LEAST_SECONDS = 0.02


class Pulses:
    """The one thread of a transport that keeps its quiet links alive.

    Args:
        liveness_seconds: after this much silence this end gives a peer up, and expects the same
            of it.
    """

    def __init__(self, liveness_seconds: float) -> None:
        self._liveness = liveness_seconds
        self._every: dict[Link, float] = {}
        self._changed = threading.Condition()
        self._stopped = False
        threading.Thread(target=self._beat, name="pulses", daemon=True).start()

    def add(self, link: Link, peers_liveness: Any) -> None:
        """Keeps a link alive until it closes; a pulse leaves after a quarter of the silence.

        Args:
            link: to the peer.
            peers_liveness: after how many seconds of silence the peer gives up, as it says.
        """
        liveness = self._liveness
        if isinstance(peers_liveness, int | float) and peers_liveness < liveness:
            liveness = peers_liveness
        with self._changed:
            self._every[link] = max(_LEAST_SECONDS, liveness / _SHARE)
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _beat(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(min(self._every.values(), default=None))
                if self._stopped:
                    return
                self._every = {link: often for link, often in self._every.items() if link.is_open}
                beats = list(self._every.items())
            for link, often in beats:
                link.pulse(often)
