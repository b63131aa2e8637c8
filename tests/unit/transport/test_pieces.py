"""Messages in pieces: how often they may come, and how much memory they may take."""

import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from mdgan.messages import Kind, Message
from mdgan.transport import guard, server_end
from mdgan.transport.base import Lost, Received
from mdgan.transport.frames import PIECE_BYTES, Frame, Most, WireError, decode, encode
from mdgan.transport.frames import next_frame as read
from mdgan.transport.guard import MOST_IN_A_ROW, Allowance
from mdgan.transport.links_pb2 import Piece
from mdgan.transport.server_end import ServerTransport
from tests.claims.registry import claim
from tests.unit.observe.conftest import Clock
from tests.unit.transport.networks import ACCEPTS, LONG, SOON, GrpcNetwork, echo, joined, note

LARGE = dict.fromkeys(ACCEPTS, Most(1 << 40, 1 << 64))


def sent(frame: Frame) -> list[Piece]:
    """What arrives at the other end of a stream."""
    return [Piece.FromString(piece) for piece in frame.pieces]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_a_body_of_any_size_arrives(size: int) -> None:
    body = bytes(torch.randint(256, (size,), dtype=torch.uint8).numpy())
    frame = Frame("SWAP", -(2**63), body, taker=7)
    assert all(len(piece.data) <= PIECE_BYTES for piece in sent(frame))
    assert read(iter(sent(frame)), LARGE) == frame


def test_messages_come_one_after_the_other_and_then_the_end() -> None:
    large = torch.randn(700_000)
    first, second = encode(Message("SWAP", 1, {}, {"w": large})), encode(note(2))
    assert len(first.pieces) > 1
    pieces = iter([*sent(first), *sent(second)])
    result = read(pieces, LARGE)
    assert result is not None
    assert torch.equal(decode(result).tensors["w"], large)
    assert read(pieces, LARGE) == second
    assert read(pieces, LARGE) is None


def test_only_what_is_accepted_is_read() -> None:
    frame = encode(note(1))
    size = len(frame.body)
    assert read(iter(sent(frame)), {frame.kind: Most(size, size)}) == frame
    with pytest.raises(WireError, match="a DISCRIMINATORS message is not expected"):
        read(iter(sent(frame)), {"SWAP": Most(1 << 30, 1 << 30)})
    with pytest.raises(WireError, match=f"of {size} bytes, at most {size - 1} are expected"):
        read(iter(sent(frame)), {frame.kind: Most(size - 1, size)})


@pytest.mark.parametrize("kind", ["", "swap", "\x1b[31m", "A" * 10_000, "Ü"])
def test_what_is_no_kind_is_told_in_one_short_line(kind: str) -> None:
    with pytest.raises(WireError, match="is not expected") as caught:
        read(iter([Piece(kind=kind, size=1, data=b"x")]), ACCEPTS)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 60


def begin(size: int, data: bytes) -> Piece:
    return Piece(kind="SWAP", size=size, data=data)


WHOLE = bytes(PIECE_BYTES)


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([begin(2 * PIECE_BYTES, WHOLE)], "ends too early"),
        ([begin(2 * PIECE_BYTES, WHOLE), begin(PIECE_BYTES, WHOLE)], "ends too early"),
        ([begin(4, b"123"), Piece(data=b"4")], "pieces of a wrong size"),
        ([begin(4, b"12345")], "pieces of a wrong size"),
        ([begin(4, b"")], "pieces of a wrong size"),
        ([begin(0, b"1")], "pieces of a wrong size"),
        ([begin(PIECE_BYTES + 1, WHOLE + b"1")], "pieces of a wrong size"),
        ([begin(PIECE_BYTES + 2, WHOLE), Piece()], "pieces of a wrong size"),
        ([begin(PIECE_BYTES + 2, WHOLE), Piece(data=b"1")], "pieces of a wrong size"),
        ([begin(PIECE_BYTES + 2, WHOLE), Piece(data=b"123")], "pieces of a wrong size"),
    ],
)
def test_a_size_that_is_a_lie(pieces: list[Piece], says: str) -> None:
    with pytest.raises(WireError, match=f"a SWAP message.*{says}"):
        read(iter(pieces), ACCEPTS)


def taken_bytes(pieces: Iterator[Piece], accepts: dict[str, Most]) -> int:
    """The most memory that reading takes until it is refused."""
    tracemalloc.start()
    with pytest.raises(WireError):
        read(pieces, accepts)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize(
    ("first", "accepts"),
    [
        (Piece(kind="SWAP", size=1 << 33), {"SWAP": Most(1000, 1000)}),
        (Piece(kind=Kind.EXTRACTOR, size=1 << 33), {"SWAP": Most(1 << 33, 1 << 33)}),
        (Piece(kind="SWAP", size=1 << 33), {"SWAP": Most(1 << 33, 1 << 33)}),  # and nothing comes
    ],
)
def test_an_announced_message_takes_no_memory_before_it_comes(
    first: Piece, accepts: dict[str, Most]
) -> None:
    assert taken_bytes(iter([first]), accepts) < 1 << 16


def test_an_endless_message_takes_no_more_than_it_announced() -> None:
    def endless() -> Iterator[Piece]:
        yield begin(PIECE_BYTES + 1, WHOLE)
        while True:
            yield Piece(data=WHOLE)

    assert taken_bytes(endless(), {"SWAP": Most(1 << 22, 1 << 22)}) < 4 * PIECE_BYTES


def test_who_tells_once_a_second_is_heard_for_ever_and_after_any_stall() -> None:
    clock = Clock()
    rates = Allowance({"SPANS": Most(1, 1, a_second=2.0)}, Counter(), clock)
    for _ in range(5000):
        clock.now += 1
        assert rates.allows("SPANS")
    clock.now += 500
    assert all(rates.allows("SPANS") for _ in range(500))


def test_who_tells_all_the_time_is_not() -> None:
    accepts = {"SPANS": Most(1, 1, a_second=2.0), "FEEDBACK": Most(1, 1)}
    rates = Allowance(accepts, Counter(), Clock())
    assert all(rates.allows("SPANS") for _ in range(MOST_IN_A_ROW))
    assert not rates.allows("SPANS")
    assert all(rates.allows("FEEDBACK") for _ in range(2 * MOST_IN_A_ROW))


def test_an_answer_comes_as_often_as_its_question() -> None:
    asked = Counter[str]()
    real = Most(1, 1, unasked=0, answers="EXTRACTOR")
    traffic = Allowance({"REAL": real, "UPDATE": Most(1, 1, unasked=1, each=2)}, asked)
    assert traffic.allows("UPDATE")
    assert not traffic.allows("UPDATE")
    asked.update(("EXTRACTOR", ""))
    assert [traffic.allows("REAL") for _ in range(2)] == [True, False]
    assert traffic.allows("UPDATE")


def test_a_flood_of_spans_ends_the_link_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_IN_A_ROW", 5)
    accepts = {**ACCEPTS, Kind.SPANS: Most(1 << 20, 1 << 20, a_second=0.001)}
    network = GrpcNetwork(accepts_from=lambda _: accepts)
    hosts = joined(network, 1, 2)
    for iteration in range(7):
        hosts[2].send(Message(Kind.SPANS, iteration))
    events = [network.server.receive(LONG) for _ in range(6)]
    assert all(isinstance(event, Received) for event in events[:5])
    assert isinstance(events[5], Lost)
    assert "SPANS messages come too often" in events[5].reason
    echo(network, hosts[1], 1)
    network.close()


NASTY: dict[str, Message] = {
    "lists": Message("SWAP", 1, {"x": [[]] * 20_000}),
    "lists in lists": Message("SWAP", 1, {"x": [[[]]] * 20_000}),
    "objects": Message("SWAP", 1, {"x": [{"": []}] * 20_000}),
    "tensors": Message("SWAP", 1, {}, {f"{n:x}": torch.empty(0) for n in range(2000)}),
}


@pytest.mark.parametrize("name", NASTY)
@claim(
    "callers",
    "Messages from one host take at most some 70 MiB of the server's memory, one message "
    "of the largest size with 80 times its JSON",
)
def test_a_message_takes_no_more_memory_than_is_counted_for_it(name: str) -> None:
    frame = encode(NASTY[name])
    decode(frame)
    tracemalloc.start()
    held = decode(frame)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held.kind == "SWAP"
    assert 10 * len(frame.body) < most < frame.held_bytes


class Way:
    """To a host that takes nothing in."""

    def put(self, frame: Frame) -> bool:
        return True

    def end(self) -> None:
        pass

    def cut(self) -> None:
        pass


def test_json_that_waits_counts_as_what_it_takes_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerTransport(lambda _: {}, LONG)
    guest = server.let_in(1, {}, Way())
    frame = encode(NASTY["lists"])
    server.take_in(guest, frame)
    there_is_room = threading.Event()
    monkeypatch.setattr(server_end, "_OF_AN_OWNER_BYTES", 20 * len(frame.body))

    def wait() -> None:
        server.await_room(guest)
        there_is_room.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not there_is_room.wait(SOON)
    while not isinstance(server.receive(LONG), Received):
        pass
    assert there_is_room.wait(LONG)


def test_the_owner_that_fills_most_memory_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = encode(NASTY["lists"])
    monkeypatch.setattr(server_end, "_OF_ALL_BYTES", 8 * frame.held_bytes)
    server = ServerTransport(lambda _: {}, LONG)
    owners = {1: "good", 2: "bad", 3: "bad", 4: "other"}
    guests = {host: server.let_in(host, {}, Way(), owner, 0) for host, owner in owners.items()}
    for host in (1, 1, 1, 4, 2, 2, 3, 3):
        server.take_in(guests[host], frame)
    server.take_in(guests[4], frame)
    events = [server.receive(LONG) for _ in range(4 + 9 + 2)]
    lost = [event for event in events if isinstance(event, Lost)]
    assert [event.peer for event in lost] == [2, 3]
    assert "its waiting messages take most memory" in lost[0].reason
