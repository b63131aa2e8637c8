"""A pipe over which a process and its child exchange messages."""

import contextlib
import json
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from mdgan.messages import Message
from mdgan.transport.frames import Frame, decode, encode


class ChannelClosed(RuntimeError):
    """The process at the other end is gone."""


class Channel:
    """One end of a pipe, whose other end must be closed in this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Message) -> None:
        """Sends a message, waiting while the pipe is full; raises ChannelClosed."""
        frame = encode(message)
        try:
            self._connection.send_bytes(json.dumps([frame.kind, frame.iteration]).encode())
            self._connection.send_bytes(frame.body)
        except (OSError, ValueError) as error:
            raise ChannelClosed from error

    def receive(self, timeout_seconds: float | None = None) -> Message | None:
        """The next message, or None when the time is up; `ChannelClosed` after the last one."""
        try:
            if not self._connection.poll(timeout_seconds):
                return None
            kind, iteration = json.loads(self._connection.recv_bytes())
            body = self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            raise ChannelClosed from error
        return decode(Frame(kind, iteration, body))

    def close(self) -> None:
        """Closes this end."""
        self._connection.close()

    def read_all(self, put: Callable[[Message], None], at_end: Callable[[], None]) -> None:
        """Reads in its own thread. Otherwise a full pipe would block the sender."""

        def read() -> None:
            with contextlib.suppress(ChannelClosed):
                while (message := self.receive()) is not None:
                    put(message)
            at_end()

        threading.Thread(target=read, name="channel", daemon=True).start()
