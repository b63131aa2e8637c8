import contextlib
import zlib
from string import ascii_uppercase

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mdgan.transport.wire import HEADER_BYTES, WireError, decode, decode_header, encode
from torch import Tensor

from mdgan.messages import Kind, Message
from mdgan.transport import wire

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
quick = settings(deadline=None, max_examples=60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any bits of any type in any shape, not a number and −0 included, sometimes with strides."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    raw = torch.randint(256, (torch.Size(shape).numel() * dtype.itemsize,), generator=random)
    raw = (raw % 2 if dtype == torch.bool else raw).to(torch.uint8)
    tensor = raw.view(dtype).view(shape)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


messages = st.builds(
    Message,
    st.sampled_from(Kind) | st.text(ascii_uppercase, min_size=1, max_size=16),
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(), json_values, max_size=4),
    st.dictionaries(st.text(), tensors(), max_size=4),
)


def raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_equal(found: Message, wanted: Message) -> None:
    assert (found.kind, found.iteration, found.fields) == (
        wanted.kind,
        wanted.iteration,
        wanted.fields,
    )
    assert list(found.tensors) == list(wanted.tensors)
    for name, tensor in wanted.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert found.tensors[name].shape == tensor.shape
        assert raw(found.tensors[name]) == raw(tensor)


def sample_message() -> Message:
    return Message(
        "FEEDBACK",
        41,
        {"workers": [3, 4]},
        {
            "feedback": torch.arange(12, dtype=torch.float32).view(2, 3, 2),
            "step": torch.tensor(7, dtype=torch.int64),
            "mask": torch.tensor([True, False]),
        },
    )


@quick
@given(messages)
@example(Message(Kind.BYE, 0))
@example(Message("SWAPPED", 3, {"": None}, {"": torch.empty(0), "a/b": torch.tensor(1.5)}))
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    header, body = encode(message)
    assert (header.dtype, header.shape) == (torch.uint8, (HEADER_BYTES,))
    assert (body.dtype, body.dim(), body.device.type) == (torch.uint8, 1, "cpu")
    announced = decode_header(header)
    assert announced.body_bytes == len(body)
    assert_equal(decode(announced, body), message)


def test_all_headers_have_one_size() -> None:
    kinds = (*Kind, "A", "DISCRIMINATORS", 16 * "Z")
    sizes = {
        len(encode(Message(kind, iteration))[0]) for kind in kinds for iteration in (0, 2**63 - 1)
    }
    assert sizes == {HEADER_BYTES}


WRONG_KINDS = ["", "feedback", "Swap", "SWAP2", "TWO WORDS", "TWO_WORDS", "Ü", "SWAP\n", "A\0B"]


@pytest.mark.parametrize("kind", [*WRONG_KINDS, 17 * "A", 1000 * "A", "A\0"])
def test_what_is_no_kind_is_not_written(kind: str) -> None:
    with pytest.raises(ValueError, match="a kind has one to 16 capital letters"):
        encode(Message(kind, 1))


@pytest.mark.parametrize("kind", WRONG_KINDS)
def test_what_is_no_kind_is_not_read(kind: str) -> None:
    packed = wire._HEADER.pack(wire._MAGIC, kind.encode(), 1, 0, 0, 0)
    packed += wire._HEADER_CHECKSUM.pack(zlib.crc32(packed))
    with pytest.raises(WireError, match="no kind of message"):
        decode_header(torch.frombuffer(bytearray(packed), dtype=torch.uint8))


def test_tensors_of_a_body_right_behind_its_header_are_aligned() -> None:
    assert HEADER_BYTES % 16 == 0


@quick
@given(messages)
def test_nothing_decoded_shares_memory_with_what_was_sent(message: Message) -> None:
    header, body = encode(message)
    received = decode(decode_header(header), body)
    before = {name: raw(tensor) for name, tensor in received.tensors.items()}
    sent = {name: raw(tensor) for name, tensor in message.tensors.items()}
    for tensor in message.tensors.values():
        tensor.zero_()
    assert {name: raw(tensor) for name, tensor in received.tensors.items()} == before == sent
    zeros = {name: raw(tensor) for name, tensor in message.tensors.items()}
    for tensor in received.tensors.values():
        tensor.fill_(1)
    assert {name: raw(tensor) for name, tensor in message.tensors.items()} == zeros


def test_tensors_with_a_gradient_travel_without_it() -> None:
    weight = torch.ones(3, requires_grad=True)
    header, body = encode(Message("SWAP", 1, tensors={"w": weight * 2}))
    received = decode(decode_header(header), body).tensors["w"]
    assert received.tolist() == [2, 2, 2]
    assert not received.requires_grad


def test_copies_have_memory_of_their_own() -> None:
    original = torch.ones(3, requires_grad=True)
    copy = wire.copied({"w": original})["w"]
    copy.zero_()
    assert original.tolist() == [1, 1, 1]
    assert not copy.requires_grad


@quick
@given(messages, st.data())
def test_a_damaged_body_is_never_accepted(message: Message, data: st.DataObject) -> None:
    header, body = encode(message)
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        decode(decode_header(header), body)


def test_no_flipped_bit_of_a_body_is_accepted() -> None:
    header, body = encode(sample_message())
    announced = decode_header(header)
    for place in range(len(body)):
        for bit in range(8):
            body[place] ^= 1 << bit
            with pytest.raises(WireError):
                decode(announced, body)
            body[place] ^= 1 << bit
    assert_equal(decode(announced, body), sample_message())


def test_no_flipped_bit_of_a_header_is_accepted() -> None:
    accepted = set()
    for place in range(HEADER_BYTES):
        for bit in range(8):
            header, body = encode(sample_message())
            header[place] ^= 1 << bit
            with contextlib.suppress(WireError):
                decode(decode_header(header), body)
                accepted.add(place)
    assert accepted == set()


@quick
@given(messages, st.data())
def test_a_damaged_header_raises_nothing_else(message: Message, data: st.DataObject) -> None:
    header, body = encode(message)
    header[data.draw(st.integers(0, HEADER_BYTES - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        decode(decode_header(header), body)


@quick
@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
@example(bytes(HEADER_BYTES))
@example(b"\xff" * HEADER_BYTES)
@example((b"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n" * 3)[:HEADER_BYTES])
def test_random_bytes_are_no_header(content: bytes) -> None:
    with pytest.raises(WireError):
        decode_header(torch.frombuffer(bytearray(content), dtype=torch.uint8))


@quick
@given(st.binary(min_size=HEADER_BYTES - 4, max_size=HEADER_BYTES - 4))
def test_random_bytes_behind_the_right_beginning_announce_no_more_than_allowed(
    content: bytes,
) -> None:
    begun = bytearray(raw(encode(sample_message())[0])[:4] + content)
    try:
        header = decode_header(torch.frombuffer(begun, dtype=torch.uint8))
    except WireError:
        return
    assert 0 <= header.fields_bytes <= header.body_bytes <= wire.MOST_BYTES


def test_a_body_too_large_to_be_true_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    header, body = encode(sample_message())
    monkeypatch.setattr(wire, "MOST_BYTES", len(body))
    decode_header(header)
    monkeypatch.setattr(wire, "MOST_BYTES", len(body) - 1)
    with pytest.raises(WireError):
        decode_header(header)


def test_a_body_of_another_length_is_refused() -> None:
    header, body = encode(sample_message())
    announced = decode_header(header)
    for length in range(len(body)):
        with pytest.raises(WireError):
            decode(announced, body[:length].clone())
    with pytest.raises(WireError):
        decode(announced, torch.cat([body, body[:16]]))


def test_the_body_of_another_message_is_refused() -> None:
    header, _ = encode(sample_message())
    _, stale = encode(Message("FEEDBACK", 40, sample_message().fields))
    with pytest.raises(WireError):
        decode(decode_header(header), stale)


def test_no_memory_of_the_sender_fills_the_gaps() -> None:
    for _ in range(20):
        torch.full((64,), 255, dtype=torch.uint8)  # what may be left where the body comes to lie
        message = Message("SWAP", 1, {}, {"a": torch.zeros(3), "b": torch.zeros(1)})
        header, body = encode(message)
        assert body[decode_header(header).fields_bytes :].tolist() == [0] * 32


def test_only_what_is_accepted_is_announced() -> None:
    header, body = encode(sample_message())
    assert decode_header(header, {"FEEDBACK": len(body)}).body_bytes == len(body)
    with pytest.raises(WireError, match="FEEDBACK message, which is not expected"):
        decode_header(header, {"SWAP": 1 << 30})
    with pytest.raises(WireError, match=f"of {len(body)} bytes; at most {len(body) - 1}"):
        decode_header(header, {"FEEDBACK": len(body) - 1})


def test_a_text_too_long_to_be_true_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    header, _ = encode(Message("SWAP", 1, {"text": "x" * 1000}))
    decode_header(header)
    monkeypatch.setattr(wire, "MOST_FIELDS_BYTES", 900)
    with pytest.raises(WireError):
        decode_header(header)


def test_tensors_are_views_of_the_body() -> None:
    header, body = encode(sample_message())
    message = decode(decode_header(header), body)
    begin, end = body.data_ptr(), body.data_ptr() + len(body)
    assert all(begin <= tensor.data_ptr() < end for tensor in message.tensors.values())
