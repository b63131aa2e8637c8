"""Messages as bytes: a header of fixed size, then a body of exactly the size it announces.

Gloo aborts the process when a message is larger than the buffer posted for it, and leaves a stale
tail when it is shorter; so the size travels first, and a checksum tells stale bytes from fresh.
"""

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mdgan.messages import Kind, Message

_HEADER = struct.Struct("<4sIqQQI")
_HEADER_CHECKSUM = struct.Struct("<I")
_MAGIC = b"mdg1"
HEADER_BYTES = _HEADER.size + _HEADER_CHECKSUM.size
MOST_BYTES = 1 << 34
"""The largest body that is believed; a header that announces more is damaged."""
_ALIGNMENT = 16


class WireError(RuntimeError):
    """Bytes that are not a message: damaged, of another version, or not from mdgan."""


class Header(NamedTuple):
    """What announces a body.

    Attributes:
        kind: of the message.
        iteration: of the message.
        fields_bytes: length of the JSON part, padding included.
        body_bytes: length of the whole body.
        checksum: CRC-32 of the body.
    """

    kind: Kind
    iteration: int
    fields_bytes: int
    body_bytes: int
    checksum: int


def encode(message: Message) -> tuple[Tensor, Tensor]:
    """A message as two fresh uint8 CPU tensors: the header [HEADER_BYTES] and the body."""
    text, starts, tensors_bytes = _layout(message)
    fields_bytes = len(text)
    body = torch.empty(fields_bytes + tensors_bytes, dtype=torch.uint8)
    body[:fields_bytes] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    for start, tensor in zip(starts, message.tensors.values(), strict=True):
        _place(body, fields_bytes + start, tensor)
    checksum = zlib.crc32(body.numpy().data)
    packed = _HEADER.pack(
        _MAGIC, message.kind, message.iteration, fields_bytes, len(body), checksum
    )
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


def decode_header(header: Tensor) -> Header:
    """Reads a header.

    Raises:
        WireError: it is not one.
    """
    packed = header.numpy().tobytes()
    magic, kind, *rest = _HEADER.unpack_from(packed)
    (checksum,) = _HEADER_CHECKSUM.unpack_from(packed, _HEADER.size)
    if magic != _MAGIC:
        raise WireError(f"not a message of this version of mdgan (starts with {magic!r})")
    if checksum != zlib.crc32(packed[: _HEADER.size]):
        raise WireError("checksum of a header does not fit")
    if kind not in set(Kind):
        raise WireError(f"unknown kind of message {kind}")
    decoded = Header(Kind(kind), *rest)
    if not decoded.fields_bytes <= decoded.body_bytes <= MOST_BYTES:
        raise WireError(f"damaged header: {decoded}")
    return decoded


def decode(header: Header, body: Tensor) -> Message:
    """Reads a body; the message's tensors are views of it.

    Raises:
        WireError: the checksum or the table of tensors does not fit.
    """
    if zlib.crc32(body.numpy().data) != header.checksum:
        raise WireError(f"checksum of a {header.kind.name} message does not fit")
    try:
        text = json.loads(body[: header.fields_bytes].numpy().tobytes())
        rest = body[header.fields_bytes :]
        tensors = {name: _view(rest, *entry) for name, *entry in text["tensors"]}
        if not isinstance(text["fields"], dict):
            raise TypeError("its fields are no object")
        return Message(header.kind, header.iteration, text["fields"], tensors)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise WireError(f"damaged {header.kind.name} message: {error}") from error


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


def _view(rest: Tensor, dtype_name: str, shape: list[int], start: int) -> Tensor:
    dtype = getattr(torch, dtype_name)
    if not isinstance(dtype, torch.dtype) or min([start, *shape]) < 0:
        raise ValueError(f"no tensor of type {dtype_name} and shape {shape} at {start}")
    size_bytes = math.prod(shape) * dtype.itemsize
    return rest[start : start + size_bytes].view(dtype).view(shape)
