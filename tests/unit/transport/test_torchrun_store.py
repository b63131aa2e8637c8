"""A torchrun store that lies: a host prints one line, and neither hangs nor fills its memory."""

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

# torch exports it without saying so.
from torch.distributed import TCPStore  # type: ignore[attr-defined] # see above

from mdgan.errors import BadInput
from mdgan.transport.torchrun_store import find_place, publish_place
from mdgan.transport.until import Until

CORNER = "mdgan/0"
LOCAL = "127.0.0.1"


@pytest.fixture
def agent() -> TCPStore:
    return TCPStore(LOCAL, 0, None, True, timedelta(seconds=10), wait_for_workers=False)


def found(port: int, seconds: float = 10.0) -> str:
    return find_place((LOCAL, port), CORNER, Until(seconds))


@pytest.mark.parametrize("place", ["10.0.0.7:29500", "[fe80::1%eth0]:1", "node-3.cluster:65535"])
def test_what_rank_0_writes_is_read(agent: TCPStore, place: str) -> None:
    for wrong in (place, "other:1", place):
        publish_place((LOCAL, agent.port), CORNER, wrong, Until(10))
    assert found(agent.port) == place


@pytest.mark.parametrize(
    "place",
    [
        *("", "nowhere", "host port", "x" * 290, "host:0", "host:65536", "host:1\n", "h:\u0661"),
        *("unix:80", "unix:/tmp/socket:80", "dns:1", "ipv4:1", "a@b:1", "\x1b[2Jhost:1"),
    ],
)
def test_what_is_no_address_is_one_line(agent: TCPStore, place: str) -> None:
    publish_place((LOCAL, agent.port), CORNER, place, Until(10))
    if not place:  # as if rank 0 had not come
        with pytest.raises(BadInput, match="rank 0 did not say in torchrun's store"):
            found(agent.port, 0.5)
        return
    with pytest.raises(BadInput, match="for an address; another program") as caught:
        found(agent.port)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


class Liar:
    """Speaks torchrun's language, and says what a test wants.

    Args:
        reply: from how many questions were asked before to the answer.
        greets: whether it answers the greeting.
    """

    def __init__(self, reply: Callable[[int], bytes], *, greets: bool = True) -> None:
        self._reply = reply
        self._greets = greets
        self._listener = socket.create_server((LOCAL, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            self._talk_to(self._listener.accept()[0])

    def _talk_to(self, caller: socket.socket) -> None:
        with caller:
            hello = b""
            while self._greets and len(hello) < 10 and (more := caller.recv(10 - len(hello))):
                hello += more
            caller.sendall(hello[6:10])
            asked = 0
            while question := caller.recv(1 << 12):
                if len(question) > 8:  # torch sends some questions in two parts
                    caller.sendall(self._reply(asked))
                    asked += 1


def number(value: int) -> bytes:
    return struct.pack("<q", value)


LIES: dict[str, Callable[[int], bytes]] = {
    "silent": lambda _: b"",
    "half an answer": lambda _: b"\x01",
    "a negative length": lambda _: number(-1),
    "a huge length": lambda _: number(1 << 31),
    "the largest length": lambda _: number((1 << 63) - 1),
    "negative parts": lambda asked: number(-1 if asked else 20),
    "huge parts": lambda asked: number((1 << 62) if asked else 20),
    "garbage": lambda _: b"\xff\x1b[2J" * 1000,
}


@pytest.fixture
def liar(request: pytest.FixtureRequest) -> Iterator[Liar]:
    made = Liar(LIES[request.param])
    yield made
    made.close()


@pytest.mark.parametrize("liar", LIES, indirect=True)
def test_a_store_that_lies_is_one_line_in_time_and_takes_no_memory(liar: Liar) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(BadInput, match="torchrun's store at") as caught:
        found(liar.port, 0.5)
    assert time.monotonic() - began < 20
    assert str(caught.value).isprintable()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # 256 MB


def test_a_server_that_is_no_store(agent: TCPStore) -> None:
    del agent
    mute = Liar(lambda _: b"", greets=False)
    with pytest.raises(BadInput, match="does not answer; check --rdzv-endpoint"):
        found(mute.port, 0.5)
    with pytest.raises(BadInput, match="does not answer; check --rdzv-endpoint"):
        publish_place((LOCAL, mute.port), CORNER, "host:1", Until(0.5))
    mute.close()
