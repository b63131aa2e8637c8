"""Messages in pieces, as they go over a stream, and pieces that are no message."""

import tracemalloc
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.messages import Kind, Message
from mdgan.transport.frames import PIECE_BYTES, Frame, Most, WireError, decode, encode
from mdgan.transport.frames import next_frame as read
from mdgan.transport.links_pb2 import Piece
from tests.unit.transport.networks import ACCEPTS, note

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
    found = read(pieces, LARGE)
    assert found is not None
    assert torch.equal(decode(found).tensors["w"], large)
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


pieces = st.builds(
    Piece,
    kind=st.sampled_from(["", "", "SWAP", "HELLO"]),
    iteration=st.integers(-(2**63), 2**63 - 1),
    size=st.integers(0, 12) | st.integers(0, 2**64 - 1),
    data=st.binary(max_size=6),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(pieces, max_size=6))
def test_any_pieces_make_messages_of_their_sizes_or_none(given: list[Piece]) -> None:
    coming = iter(given)
    try:
        while (frame := read(coming, {"SWAP": Most(10, 1 << 64)})) is not None:
            assert frame.kind == "SWAP"
            assert len(frame.body) <= 10
    except WireError:
        pass
