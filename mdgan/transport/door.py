"""The listening side: lets in whoever proves that it knows the key, however many do not."""

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mdgan.messages import Message
from mdgan.transport.handshake import as_server
from mdgan.transport.link import Link
from mdgan.transport.until import Until

HANDSHAKE_SECONDS = 5.0
"""For the proofs and the first message together, however slowly they trickle in."""
MOST_HALF_OPEN = 64
MOST_PER_ADDRESS = 16
_ROOM_AFTER_SECONDS = 0.25
_LOOK_SECONDS = 0.5
_BREATH_SECONDS = 0.2
_CROWDED_SECONDS = 0.001
_ONE_NEWCOMERS_FAULT = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM)


class Complaints:
    """Passes on one line a second at most, and how many more there were.

    Args:
        tell: called with a line, from any thread.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._told = -1.0
        self._kept = ""
        self._more = 0

    def add(self, text: str) -> None:
        """Tells a line, or counts it."""
        with self._lock:
            self._more += bool(self._kept)
            self._kept = text
        self.flush()

    def flush(self) -> None:
        """Tells what was kept back for a second."""
        with self._lock:
            if not self._kept or time.monotonic() - self._told < 1.0:
                return
            text = f"{self._kept} (and {self._more} more)" if self._more else self._kept
            self._kept, self._more, self._told = "", 0, time.monotonic()
        self._tell(text)


@dataclass(frozen=True)
class Newcomer:
    """Who has proved that it knows the key.

    Attributes:
        link: to it; whoever takes it in closes it.
        first: the first message it sent.
        address: where it comes from.
    """

    link: Link
    first: Message
    address: str


class Door:
    """Accepts connections, each handled in a thread of its own.

    When too many are half open, the one that has been so for longest makes room, of the same
    address if that one has too many; those that have only just come are left their time. So whoever
    knows the key gets in while others knock, and who knocks in masses is in its own way first.

    Args:
        listener: listening; the door closes it.
        key: what newcomers must know.
        accepts: the kinds of first message, each with the most bytes of its body.
        enter: called with each newcomer in its thread, which it may keep.
        complain: called with one line about those who did not get in, once a second at most.
        liveness_seconds: of the links.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        accepts: Mapping[str, int],
        enter: Callable[[Newcomer], None],
        complain: Callable[[str], None],
        liveness_seconds: float,
    ) -> None:
        self._listener = listener
        self._key = key
        self._accepts = accepts
        self._enter = enter
        self._complaints = Complaints(complain)
        self._liveness = liveness_seconds
        self._lock = threading.Lock()
        self._half_open: dict[socket.socket, tuple[str, float]] = {}  # oldest first
        self._closing = threading.Event()
        listener.settimeout(_LOOK_SECONDS)
        self._thread = threading.Thread(target=self._accept, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Lets nobody in any more; whoever is half in is turned away."""
        self._closing.set()
        with contextlib.suppress(OSError):  # wakes the accepting thread, where the system does that
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            for connection in self._half_open:
                _turn_away(connection)

    def _accept(self) -> None:
        while not self._closing.is_set():
            self._complaints.flush()
            try:
                connection, address = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if error.errno not in _ONE_NEWCOMERS_FAULT and not self._closing.is_set():
                    self._complaints.add(f"nobody can come in: {error.strerror}")
                    self._closing.wait(_BREATH_SECONDS)  # no file left, for example
                continue
            self._receive(connection, str(address[0]))

    def _receive(self, connection: socket.socket, address: str) -> None:
        with self._lock:
            has_room = self._make_room(address)
            if has_room:
                self._half_open[connection] = (address, time.monotonic())
        if not has_room:
            connection.close()
            self._complaints.add(f"{address}: too many knock at once")
            self._closing.wait(_CROWDED_SECONDS)
            return
        try:
            threading.Thread(
                target=self._meet, args=(connection, address), name=f"meet-{address}", daemon=True
            ).start()
        except RuntimeError:
            self._complaints.add("nobody can come in: no thread can be started")
            with self._lock:
                del self._half_open[connection]
            connection.close()

    def _make_room(self, address: str) -> bool:
        """Whether one more fits, after turning away the oldest if need be."""
        of_address = [known for known, (its, _) in self._half_open.items() if its == address]
        if len(of_address) >= MOST_PER_ADDRESS:
            oldest = of_address[0]
        elif len(self._half_open) >= MOST_HALF_OPEN:
            oldest = next(iter(self._half_open))
        else:
            return True
        if time.monotonic() - self._half_open[oldest][1] < _ROOM_AFTER_SECONDS:
            return False
        del self._half_open[oldest]
        _turn_away(oldest)
        return True

    def _meet(self, connection: socket.socket, address: str) -> None:
        until = Until(HANDSHAKE_SECONDS)
        link: Link | None = None
        try:
            as_server(connection, self._key, until)
            link = Link(connection, self._accepts, self._liveness)
            first, _ = link.receive(until)
        except (RuntimeError, OSError) as error:
            (link or connection).close()
            if not self._closing.is_set():
                self._complaints.add(f"{address}: {one_line(error)}")
            return
        finally:
            with self._lock:
                self._half_open.pop(connection, None)
        try:
            self._enter(Newcomer(link, first, address))
        except BaseException:
            link.close()
            raise


def one_line(error: object) -> str:
    """What an error or a stranger says, in one printable line of bounded length."""
    text = str(error).partition("\n")[0][:500]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _turn_away(connection: socket.socket) -> None:
    """Ends a connection that another thread may be reading; that thread closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
