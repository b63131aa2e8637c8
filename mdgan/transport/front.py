"""Opens a port of a gRPC server, and starts the small process that accepts connections there."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import unquote

from mdgan.system import hold_silent_callers
from mdgan.transport.front_process import SERVER

_MOST_UNACCEPTED = 1024
_FIRST_WORDS_SECONDS = 5
_RESTART_SECONDS = 0.5
_CLOSE_SECONDS = 2.0


class Front:
    """A port, and the process that accepts its connections (`front_process`).

    Args:
        place: address and port; port 0 for a free one.

    Attributes:
        place: the same, with the chosen port.
        behind: the socket where the server must listen before it calls `start`.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """

    def __init__(self, place: str) -> None:
        address, _, port = place.rpartition(":")
        bare = address.strip("[]")
        self._listening = socket.create_server(
            (bare, int(port)),
            family=socket.AF_INET6 if ":" in bare else socket.AF_INET,
            backlog=_MOST_UNACCEPTED,
            dualstack_ipv6=bare == "::" and socket.has_dualstack_ipv6(),
        )
        hold_silent_callers(self._listening, _FIRST_WORDS_SECONDS)
        self._listening.setblocking(False)
        self.place = f"{address}:{self._listening.getsockname()[1]}"
        self._folder = tempfile.mkdtemp(prefix="mdgan-")
        self.behind = f"unix:{self._folder}/{SERVER}"
        self._is_closing = False

    def start(self) -> None:
        """Starts the process, and restarts it whenever it dies before `close`."""
        self._process = self._start_process()
        threading.Thread(target=self._restart, name="front", daemon=True).start()

    def let(self, peer: str) -> None:
        """Lets a connection stay; `peer` is gRPC's name for its other end."""
        self._say("let", peer)

    def end(self, peer: str) -> None:
        """Ends a connection; further ones from its address then have to wait."""
        self._say("end", peer)

    def close(self) -> None:
        """Ends the process after it has passed on the server's last bytes."""
        self._is_closing = True
        self._listening.close()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=_CLOSE_SECONDS)

    def _start_process(self) -> "subprocess.Popen[bytes]":
        port = self._listening.fileno()
        code = f"import sys; sys.path[:] = {sys.path}; from {__name__}_process import main; main("
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", f"{code}{port}, {self._folder!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[port],
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _restart(self) -> None:
        while True:
            self._process.wait()
            time.sleep(_RESTART_SECONDS)
            if self._is_closing:
                break
            before, self._process = self._process, self._start_process()
            assert before.stdin is not None
            before.stdin.close()

    def _say(self, order: str, peer: str) -> None:
        name = unquote(peer).removeprefix("unix:")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the process has died with the connection
            os.write(self._process.stdin.fileno(), f"{order} {name}\n".encode())
