"""Messages as bytes: a header of fixed size, then a body of exactly the size it announces.

The reader of a header says what it accepts, so that no memory is taken for a body that is too large
or of an unexpected kind. Bytes may come from anywhere: anything that is not exactly what `encode`
writes is a `WireError`.
"""

import json
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mdgan.messages import Message

_KIND_BYTES = 16
# Padded, so that tensors are aligned in a body that lies right behind its header.
_HEADER = struct.Struct(f"<4s{_KIND_BYTES}sqQQI12x")
_HEADER_CHECKSUM = struct.Struct("<I")
_MAGIC = b"mdg3"
HEADER_BYTES = _HEADER.size + _HEADER_CHECKSUM.size
MOST_BYTES = 1 << 34
"""The largest body that is believed; a header that announces more is damaged."""
MOST_FIELDS_BYTES = 1 << 24
"""The largest JSON part that is believed: it takes up to 25 times its size when it is read."""
_ALIGNMENT = 16
_MOST_DIMENSIONS = 16
_MOST_ELEMENTS = 1 << 40
_KIND = re.compile(rb"[A-Z]{1,16}")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
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
}


class WireError(RuntimeError):
    """Bytes that are not a message: damaged, of another version, not accepted, or not mdgan's."""


class Header(NamedTuple):
    """What announces a body.

    Attributes:
        kind: of the message, one to sixteen capital letters.
        iteration: of the message.
        fields_bytes: length of the JSON part, padding included.
        body_bytes: length of the whole body.
        checksum: CRC-32 of the body.
    """

    kind: str
    iteration: int
    fields_bytes: int
    body_bytes: int
    checksum: int


Frame = tuple[Tensor, Tensor]
"""A message as bytes: the header, uint8 [HEADER_BYTES], and the body, uint8 [body_bytes]."""


def encode(message: Message) -> Frame:
    """A message as two fresh CPU tensors; the body's padding is zero.

    Raises:
        ValueError: its kind cannot be written.
    """
    kind = message.kind.encode()
    if not _KIND.fullmatch(kind):
        raise ValueError(f"{message.kind!r:.40}: a kind has one to {_KIND_BYTES} capital letters")
    text, starts, tensors_bytes = _layout(message)
    fields_bytes = len(text)
    body = torch.empty(fields_bytes + tensors_bytes, dtype=torch.uint8)
    body[:fields_bytes] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    for start, tensor in zip(starts, message.tensors.values(), strict=True):
        _place(body, fields_bytes + start, tensor)
    checksum = zlib.crc32(body.numpy().data)
    packed = _HEADER.pack(_MAGIC, kind, message.iteration, fields_bytes, len(body), checksum)
    packed += _HEADER_CHECKSUM.pack(zlib.crc32(packed))
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8), body


def encoded_bytes(message: Message) -> int:
    """How many bytes a message takes, header and body, without encoding its tensors."""
    text, _, tensors_bytes = _layout(message)
    return HEADER_BYTES + len(text) + tensors_bytes


def _layout(message: Message) -> tuple[bytes, list[int], int]:
    """The JSON part, padded; where each tensor begins behind it; the bytes of all tensors."""
    table: list[list[Any]] = []
    offset = 0
    for name, tensor in message.tensors.items():
        table.append([name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), offset])
        offset += _padded(tensor.numel() * tensor.element_size())
    text = json.dumps({"fields": message.fields, "tensors": table}, separators=(",", ":")).encode()
    return text.ljust(_padded(len(text))), [row[3] for row in table], offset


def decode_header(header: Tensor, accepts: Mapping[str, int] | None = None) -> Header:
    """Reads a header.

    Args:
        header: uint8 [HEADER_BYTES].
        accepts: the kinds that may come, each with the most bytes of its body; None for all.

    Raises:
        WireError: it is not one, or announces what is not accepted.
    """
    packed = header.numpy().tobytes()
    magic, kind, *rest = _HEADER.unpack_from(packed)
    (checksum,) = _HEADER_CHECKSUM.unpack_from(packed, _HEADER.size)
    if magic != _MAGIC:
        raise WireError(f"not a message of this version of mdgan (starts with {magic!r})")
    if checksum != zlib.crc32(packed[: _HEADER.size]):
        raise WireError("checksum of a header does not fit")
    named = kind.rstrip(b"\0")
    if not _KIND.fullmatch(named):
        raise WireError(f"no kind of message: {kind!r}")
    decoded = Header(named.decode(), *rest)
    if (
        not decoded.fields_bytes <= decoded.body_bytes <= MOST_BYTES
        or decoded.fields_bytes > MOST_FIELDS_BYTES
        or decoded.fields_bytes % _ALIGNMENT
    ):
        raise WireError(f"damaged header: {decoded}")
    if accepts is not None:
        _check_accepted(decoded, accepts)
    return decoded


def _check_accepted(header: Header, accepts: Mapping[str, int]) -> None:
    name = header.kind
    if header.kind not in accepts:
        raise WireError(f"a {name} message, which is not expected here")
    if header.body_bytes > accepts[header.kind]:
        raise WireError(
            f"a {name} message of {header.body_bytes} bytes; at most {accepts[header.kind]} are "
            "accepted here"
        )


def decode(header: Header, body: Tensor) -> Message:
    """Reads a body; the message's tensors are views of it.

    Raises:
        WireError: the checksum or the table of tensors does not fit.
    """
    if len(body) != header.body_bytes or zlib.crc32(body.numpy().data) != header.checksum:
        raise WireError(f"checksum of a {header.kind} message does not fit")
    try:
        text = json.loads(body[: header.fields_bytes].numpy().tobytes())
        fields, table = text["fields"], text["tensors"]
        if not isinstance(fields, dict) or not isinstance(table, list) or len(text) != 2:
            raise TypeError("its text is not made of fields and tensors")
        tensors = dict(_views(body[header.fields_bytes :], table))
        if len(tensors) < len(table):
            raise ValueError("two tensors of one name")
        return Message(header.kind, header.iteration, fields, tensors)
    # A RecursionError, for lists within lists, is a RuntimeError.
    except (ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise WireError(f"damaged {header.kind} message: {reason}") from error


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors in memory of their own, as they would be after a journey."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _padded(size_bytes: int) -> int:
    return math.ceil(size_bytes / _ALIGNMENT) * _ALIGNMENT


def _place(body: Tensor, start: int, tensor: Tensor) -> None:
    size_bytes = tensor.numel() * tensor.element_size()
    if size_bytes:
        space = body[start : start + size_bytes].view(tensor.dtype)
        space.copy_(tensor.detach().reshape(-1))
        # What is left of the last 16 bytes would carry a piece of this process's memory away.
        body[start + size_bytes : start + _padded(size_bytes)] = 0


def _views(rest: Tensor, table: Sequence[Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a table, which must fill the rest of a body one after the other."""
    expected = 0
    for row in table:
        name, dtype_name, shape, start = row
        dtype = _DTYPES[dtype_name]
        size_bytes = _num_elements(shape) * dtype.itemsize
        end = expected + size_bytes
        well_placed = type(start) is int and start == expected and end <= len(rest)
        if not isinstance(name, str) or not isinstance(row, list) or not well_placed:
            raise ValueError(f"no tensor of type {dtype_name} at {str(start)[:50]}")
        if dtype is torch.bool and size_bytes and int(rest[start:end].max()) > 1:
            raise ValueError("a truth value is neither 0 nor 1")
        yield name, rest[start:end].view(dtype).view(shape)
        expected += _padded(size_bytes)
    if expected != len(rest):
        raise ValueError(f"tensors of {expected} bytes in {len(rest)}")


def _num_elements(shape: Any) -> int:
    well_formed = isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS
    if not well_formed or not all(type(n) is int and 0 <= n <= _MOST_ELEMENTS for n in shape):
        raise ValueError("no shape")
    return math.prod(shape)
