"""Bodies that a stranger made by hand, with a checksum that fits: their text and their table."""

import json
import zlib
from typing import Any

import pytest
import torch
from hypothesis import given
from mdgan.transport.wire import Header, WireError, decode
from torch import Tensor

from tests.unit.transport.test_wire import json_values, quick


def handmade(text: bytes, rest: bytes = bytes(64)) -> tuple[Header, Tensor]:
    """A body with a checksum that fits, whatever is in it."""
    text = text.ljust(-(-len(text) // 16) * 16)
    body = torch.frombuffer(bytearray(text + rest), dtype=torch.uint8)
    return Header("SWAP", 1, len(text), len(body), zlib.crc32(text + rest)), body


@pytest.mark.parametrize(
    "entry",
    [
        ["w", "float32", [4], 0, 0],
        ["w", "float32", [4]],
        ["w"],
        [],
        "w",
        3,
        None,
        [["w"], "float32", [4], 0],
        [{}, "float32", [4], 0],
        ["w", 32, [4], 0],
        ["w", None, [4], 0],
        ["w", "tensor", [4], 0],
        ["w", "__name__", [4], 0],
        ["w", "nothing of the kind", [4], 0],
        ["w", "float32", 4, 0],
        ["w", "float32", "4", 0],
        ["w", "float32", [4.0], 0],
        ["w", "float32", [None], 0],
        ["w", "float32", [-1], 0],
        ["w", "float32", [-2, -2], 0],
        ["w", "float32", [17], 0],
        ["w", "float32", [4], 64],
        ["w", "float32", [4], -16],
        ["w", "float32", [4], 2],
        ["w", "float32", [4], 1.0],
        ["w", "float32", [4], "0"],
        ["w", "float32", [4], None],
        ["w", "float32", [2**70], 0],
        ["w", "float32", [0, 2**70], 0],
        ["w", "float32", [4], 2**70],
        ["w", "float32", [4], 48],
        ["w", "float32", [16], False],
        ["w", "float32", [True, 16], 0],
        ["w", "float32", [1] * 100, 0],
        ["w", "complex64", [8], 0],
        ["w", "qint8", [64], 0],
        ["w", "bits8", [64], 0],
        ["w", "float8_e4m3fn", [64], 0],
        ["w", "float", [16], 0],
        {"w": 0, "float32": 1, "shape": 2, "start": 3},
    ],
)
def test_a_table_that_makes_no_sense_is_refused(entry: Any) -> None:
    text = json.dumps({"fields": {}, "tensors": [entry]})
    with pytest.raises(WireError):
        decode(*handmade(text.encode()))


@pytest.mark.parametrize(
    "table",
    [
        [],  # bytes that belong to nothing
        [["w", "float32", [12], 0]],
        [["w", "float32", [8], 0], ["v", "float32", [8], 0]],
        [["w", "float32", [12], 0], ["v", "float32", [8], 32]],
        [["w", "float32", [8], 32], ["v", "float32", [8], 0]],
        [["w", "float32", [8], 0], ["w", "float32", [8], 32]],
        [["w", "float32", [8], 0], ["v", "float32", [8], 32], ["u", "int8", [1], 64]],
        [["w", "int8", [1], 0], ["v", "float32", [8], 1]],
    ],
)
def test_tensors_lie_one_after_the_other_and_nothing_else_does(table: Any) -> None:
    fits = {"fields": {}, "tensors": [["w", "float32", [8], 0], ["v", "int8", [32], 32]]}
    assert len(decode(*handmade(json.dumps(fits).encode())).tensors) == 2
    with pytest.raises(WireError):
        decode(*handmade(json.dumps({"fields": {}, "tensors": table}).encode()))


def test_truth_is_0_or_1() -> None:
    text = b'{"fields": {}, "tensors": [["w", "bool", [16], 0]]}'
    assert decode(*handmade(text, bytes([0, 1] * 8))).tensors["w"].tolist() == [False, True] * 8
    with pytest.raises(WireError, match="truth"):
        decode(*handmade(text, bytes([0, 2] * 8)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b'{"fields": {}}',
        b'{"tensors": []}',
        b'{"fields": [], "tensors": []}',
        b'{"fields": null, "tensors": []}',
        b'{"fields": {}, "tensors": 3}',
        b'{"fields": {}, "tensors": {"w": 1}}',
        b"[" * 50_000,
    ],
)
def test_a_text_that_makes_no_sense_is_refused(text: bytes) -> None:
    with pytest.raises(WireError):
        decode(*handmade(text))


def test_a_handmade_message_that_makes_sense_is_read() -> None:
    text = b'{"fields": {"a": 1}, "tensors": [["v", "int8", [3], 0], ["w", "uint8", [2, 2], 16]]}'
    message = decode(*handmade(text, bytes(range(32))))
    assert message.fields == {"a": 1}
    assert message.tensors["v"].tolist() == [0, 1, 2]
    assert message.tensors["w"].tolist() == [[16, 17], [18, 19]]


@quick
@given(json_values)
def test_any_table_is_read_or_refused(table: Any) -> None:
    text = json.dumps({"fields": {}, "tensors": [["w", "float32", table, table]]})
    try:
        message = decode(*handmade(text.encode()))
    except WireError:
        return
    assert list(message.tensors) == ["w"]
    assert message.tensors["w"].dtype == torch.float32
