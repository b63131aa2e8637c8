"""What a machine on the way between two others can see and do, played by a proxy.

The hosts of `tests/hostile` are members of a run; this is what can be done without being one.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from mdgan import messages
from mdgan.transport.frames import encode
from tests.chaos.staging import QUIET, check_left_whole
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    Process,
    finish,
    read_events,
    read_status,
    run_here,
    start,
    wait_until,
)

pytestmark = pytest.mark.slow

TELLTALE = (
    *(b"mdgan.Server", b"__metadata__", b"dtype", b"workers", b"class_counts", b"answers"),
    *(b"mdgan.Parcels", b"purpose", b"relayed"),
)
"""What messages and calls have in plain text; the first those from hosts to the server."""
ITERATIONS = 100
TRAIN = [*MDGAN, "train", *QUIET, "--world-size", "3", "--iterations", str(ITERATIONS)]
TRAIN += ["--swap-interval", "10", "--checkpoint-interval", "50"]
CREDENTIALS = ["--credentials", "run.cred"]
_CHUNK = 4096

Change = Callable[[int, int, bytes], bytes | None]
"""What becomes of bytes that pass: gets the number of the connection, from 0, how many bytes came
before that way, and the bytes. None ends the connection."""


def as_they_are(_number: int, _before: int, data: bytes) -> bytes:
    return data


@pytest.fixture(autouse=True)
def _credentials(tmp_path: Path) -> None:
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0


def tls_records(stream: bytes) -> Iterator[int]:
    """The types of the records of TLS, of which a stream consists and of nothing else."""
    at = 0
    while at + 5 <= len(stream):
        kind, version, length = struct.unpack_from(">BHH", stream, at)
        assert version in (0x0301, 0x0303), f"no record of TLS at byte {at}"
        assert length <= 2**14 + 256
        yield kind
        at += 5 + length


class Middle:
    """A machine in the path: takes connections, and passes on what it likes to a server.

    Args:
        server: the port that it passes on to.
        change: changes the bytes that a host sends.
        answer: changes the bytes that the server sends.

    Attributes:
        port: where it listens.
        heard: what hosts have sent, by connection.
    """

    def __init__(self, server: int, change: Change, answer: Change) -> None:
        self._server, self._change, self._answer = server, change, answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard: list[bytearray] = []
        self._threads = [threading.Thread(target=self._take_all, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        self._listener.close()

    def replay(self, number: int) -> None:
        """Sends to the server what a host has sent before, until the server closes."""
        with (
            socket.create_connection(("127.0.0.1", self._server), timeout=300) as again,
            contextlib.suppress(ConnectionError),
        ):
            again.sendall(self.heard[number])
            while again.recv(_CHUNK):
                pass

    def _take_all(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.heard.append(bytearray())
                work = near, len(self.heard) - 1
                self._threads.append(threading.Thread(target=self._link, args=work))
                self._threads[-1].start()

    def _link(self, near: socket.socket, number: int) -> None:
        with near, socket.create_connection(("127.0.0.1", self._server)) as far:
            way_back = partial(self._answer, number), bytearray()
            back = threading.Thread(target=self._pass, args=(far, near, *way_back))
            back.start()
            self._pass(near, far, partial(self._change, number), self.heard[number])
            back.join()

    def _pass(
        self,
        one: socket.socket,
        other: socket.socket,
        change: Callable[[int, bytes], bytes | None],
        seen: bytearray,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                passed = change(len(seen), data)
                seen += data
                if passed is None:
                    break
                other.sendall(passed)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def through(
    folder: Path, change: Change, answer: Change = as_they_are, guard: Sequence[str] = CREDENTIALS
) -> Iterator[tuple[Middle, list[Process]]]:
    """A run whose hosts, of one worker each, reach the server through a machine in the path."""
    listen = ["--ranks", "0", "--listen", "127.0.0.1:0", "--out", "run"]
    server = start([*TRAIN, *guard, *listen], folder)
    wait_until((folder / "run" / "run.json").exists, "the server is there")
    middle = Middle(int(read_status(folder / "run")["listens"].rpartition(":")[2]), change, answer)
    where = ["--master-port", str(middle.port)]
    hosts = [
        start([*TRAIN, *guard, *where, "--ranks", rank, "--out", "run"], folder) for rank in "12"
    ]
    try:
        yield middle, [server, *hosts]
    finally:
        middle.close()


def check_ended_well(folder: Path, ends: list[Process]) -> str:
    """Checks that a run went on to its end; what it said."""
    results = [finish(end) for end in ends]
    assert [result.status for result in results] == [0, 0, 0], results
    output = "".join(result.errors for result in results)
    assert "Traceback" not in output
    check_left_whole(folder / "run", ITERATIONS)
    return output


def once(alter: Callable[[bytes], bytes]) -> Change:
    """Alters bytes of the first connection once, when training is well under way."""

    def change(number: int, before: int, data: bytes) -> bytes:
        is_there = number == 0 and before < 60_000 <= before + len(data)
        return alter(data) if is_there else data

    return change


def with_a_bit_flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def with_a_stop(data: bytes) -> bytes:
    """A STOP, as the server would send it, in a record of TLS that has no valid proof."""
    stop = b"".join(encode(messages.stop(1, "")).pieces)
    return data + struct.pack(">BHH", 23, 0x0303, len(stop)) + stop


class Replaced:
    """Puts what a host has sent before, as feedback, in place of what it sends now."""

    def __init__(self) -> None:
        self._before = b""
        self._change = once(lambda data: self._before[-len(data) :])

    def __call__(self, number: int, before: int, data: bytes) -> bytes | None:
        passed = self._change(number, before, data)
        if number == 0:
            self._before += data
        return passed


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        pytest.param(once(with_a_bit_flipped), as_they_are, id="one bit of a feedback"),
        pytest.param(Replaced(), as_they_are, id="a feedback by an earlier one"),
        pytest.param(as_they_are, once(with_a_stop), id="a stop put in"),
    ],
)
@claim("tls", "A machine in the path can neither read nor change what passes; it can only cut it.")
def test_a_machine_in_the_path_can_neither_read_nor_change_nor_go_on(
    tmp_path: Path, change: Change, answer: Change
) -> None:
    """What it alters ends the connection, and the host comes back."""
    with through(tmp_path, change, answer) as (middle, ends):
        wait_until(lambda: bool(read_events(tmp_path / "run", "joined")), "the host is back")
        # What a host has sent before its connection ended is of no use for another one.
        middle.replay(0)
        said = check_ended_well(tmp_path, ends)
    (lost,), (joined,) = (read_events(tmp_path / "run", name) for name in ("lost", "joined"))
    assert lost["workers"] == joined["workers"]
    assert "is back after" in said
    for stream in middle.heard:
        assert not any(sign in stream for sign in TELLTALE)
        assert set(tls_records(bytes(stream))) <= {20, 21, 22, 23}


def test_without_encryption_the_same_machine_reads_everything(tmp_path: Path) -> None:
    with through(tmp_path, as_they_are, guard=["--insecure"]) as (middle, ends):
        check_ended_well(tmp_path, ends)
    traffic = b"".join(middle.heard)
    assert all(sign in traffic for sign in TELLTALE[:6])


def test_a_proxy_that_cuts_streams_again_and_again(tmp_path: Path) -> None:
    """Six connections end after 60 kB each, and the run goes on to its end."""
    cut: set[int] = set()

    def change(number: int, before: int, data: bytes) -> bytes | None:
        if before < 60_000 or len(cut) == 6:
            return data
        cut.add(number)
        return None

    with through(tmp_path, change) as (_, ends):
        said = check_ended_well(tmp_path, ends)
    assert len(cut) >= 6
    assert len(read_events(tmp_path / "run", "lost")) == len(cut) == said.count("is back after")
