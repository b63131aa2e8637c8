"""Messages become bytes and messages again; other bytes are refused."""

import json
import struct
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.errors import one_line
from mdgan.messages import Kind, Message
from mdgan.transport.frames import Frame, WireError, decode, encode
from tests.marks import examples

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
quick = settings(deadline=None, max_examples=examples(24))
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
    st.dictionaries(st.text(max_size=8), tensors(), max_size=4),
)


def raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_equal(result: Message, wanted: Message) -> None:
    assert (result.kind, result.iteration, result.fields) == (
        *(wanted.kind, wanted.iteration, wanted.fields),
    )
    assert result.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors.items():
        assert result.tensors[name].dtype == tensor.dtype
        assert result.tensors[name].shape == tensor.shape
        assert raw(result.tensors[name]) == raw(tensor)


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
@example(Message(Kind.HELLO, 0))
@example(Message("SWAPPED", 3, {"": None}, {"": torch.empty(0), "a/b": torch.tensor(1.5)}))
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert_equal(decode(encode(message)), message)


@pytest.mark.parametrize(
    "kind", ["", "feedback", "Swap", "SWAP2", "TWO_WORDS", "Ü", "SWAP\n", "A\0B", 17 * "A"]
)
def test_what_is_no_kind_is_not_written(kind: str) -> None:
    with pytest.raises(ValueError, match="a kind has one to sixteen capital letters"):
        encode(Message(kind, 1))


X = torch.arange(10.0)


@pytest.mark.parametrize(
    "values",
    [
        {"a": X, "b": X},
        {"a": X, "b": X[1:]},
        {"a": X[2:8], "b": X[:5], "c": X[::3]},
        {"a": X.view(2, 5), "b": X.view(2, 5).T},
        {"a": X[:5], "b": X[5:]},
        {"a": torch.empty(0), "b": torch.empty(3, 0), "c": torch.empty(0, dtype=torch.int64)},
        {"a": torch.ones(1).expand(4, 3), "b": torch.ones((2, 3, 4, 5))[:, 1]},
    ],
)
def test_tensors_that_share_memory_arrive_as_they_were(values: Mapping[str, Tensor]) -> None:
    decoded = decode(encode(Message("SWAP", 1, {}, values))).tensors
    assert decoded.keys() == values.keys()
    assert all(torch.equal(decoded[name], tensor) for name, tensor in values.items())
    for tensor in decoded.values():
        tensor.fill_(7)
    assert X.tolist() == [*range(10)]
    places = [tensor.data_ptr() for tensor in decoded.values() if tensor.numel()]
    assert len(set(places)) == len(places)


def test_tensors_with_a_gradient_travel_without_it() -> None:
    weight = torch.ones(3, requires_grad=True)
    received = decode(encode(Message("SWAP", 1, tensors={"w": weight * 2}))).tensors["w"]
    assert received.tolist() == [2, 2, 2]
    assert not received.requires_grad


def test_every_process_sees_tensors_in_one_order() -> None:
    names = [f"{number}/w" for number in range(30)]
    decoded = decode(encode(Message("SWAP", 1, {}, dict.fromkeys(reversed(names), X[:1]))))
    assert list(decoded.tensors) == sorted(names)


# Bytes that are no message.


def handmade(header: object, data: bytes = b"") -> Frame:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return Frame("SWAP", 1, struct.pack("<Q", len(text)) + text + data)


def with_tensors(table: Mapping[str, Any], data: bytes, fields: str = "{}") -> Frame:
    return handmade({"__metadata__": {"fields": fields}, **table}, data)


def test_a_handmade_message_that_makes_sense_is_read() -> None:
    table = {
        "v": {"dtype": "I8", "shape": [3], "data_offsets": [0, 3]},
        "w": {"dtype": "U8", "shape": [2, 2], "data_offsets": [3, 7]},
    }
    message = decode(with_tensors(table, bytes(range(7)), '{"a": 1}'))
    assert message.fields == {"a": 1}
    assert message.tensors["v"].tolist() == [0, 1, 2]
    assert message.tensors["w"].tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("dtype", "shape", "offsets"),
    [
        ("F32", [4], [0, 15]),
        ("F32", [4], [0, 17]),
        ("F32", [4], [1, 17]),
        ("F32", [4], [16, 0]),
        ("F32", [4], [0]),
        ("F32", [4], None),
        ("F32", [4], [0, 2**64]),
        ("F32", [3], [0, 16]),
        ("F32", [-4], [0, 16]),
        ("F32", [4.0], [0, 16]),
        ("F32", "4", [0, 16]),
        ("F32", 4, [0, 16]),
        ("F32", [2**62, 4], [0, 16]),
        ("F32", [1] * 16 + [4], [0, 16]),
        ("F8_E4M3", [16], [0, 16]),
        ("C64", [2], [0, 16]),
        ("U64", [2], [0, 16]),
        ("float32", [4], [0, 16]),
        (None, [4], [0, 16]),
        (7, [4], [0, 16]),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(dtype: Any, shape: Any, offsets: Any) -> None:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    with pytest.raises(WireError, match="damaged SWAP message"):
        decode(with_tensors({"w": entry}, bytes(16)))


def test_bytes_that_belong_to_no_tensor_are_refused() -> None:
    with pytest.raises(WireError):
        decode(with_tensors({}, bytes(16)))
    two = {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}
    with pytest.raises(WireError):
        decode(with_tensors({"v": two, "w": two}, bytes(8)))


def test_truth_is_0_or_1() -> None:
    table = {"w": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}
    assert decode(with_tensors(table, bytes([0, 1, 1, 0]))).tensors["w"].tolist() == [
        *(False, True, True, False)
    ]
    with pytest.raises(WireError, match="truth"):
        decode(with_tensors(table, bytes([0, 1, 2, 0])))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"\xff",
        [],
        None,
        7,
        {},
        {"__metadata__": None},
        {"__metadata__": {}},
        {"__metadata__": {"fields": {}}},
        {"__metadata__": {"fields": "[]"}},
        {"__metadata__": {"fields": "7"}},
        {"__metadata__": {"fields": "{"}},
        {"__metadata__": {"fields": "9" * 5000}},
        {"__metadata__": {"fields": "[" * 50_000}},
        {"__metadata__": {"fields": '{"a":' * 50_000}},
        b'{"__metadata__":{"fields":"{}"},"__metadata__":{"fields":"{}"}}',
        b"[" * 50_000,
    ],
)
def test_a_text_that_makes_no_sense_is_refused(header: object) -> None:
    with pytest.raises(WireError):
        decode(handmade(header))


def test_a_body_of_another_length_is_refused() -> None:
    body = encode(sample_message()).body
    for length in range(len(body)):
        with pytest.raises(WireError):
            decode(Frame("SWAP", 1, body[:length]))
    with pytest.raises(WireError):
        decode(Frame("SWAP", 1, body + bytes(16)))


def test_what_is_wrong_is_told_in_one_printable_line() -> None:
    told = one_line("bad\x1b[31m\u202e \x00thing\nand more " + 1000 * "x")
    assert told == "bad?[31m? ?thing"
    assert len(one_line(1000 * "x")) == 500
