"""Turns messages into bytes and back, and limits the size and number of those that a peer sends.

A message is a safetensors file with its fields as JSON in the metadata, sent in pieces. Bytes that
are no message raise `WireError`.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np
import safetensors
import torch
from torch import Tensor

from mdgan.errors import one_line
from mdgan.messages import Message
from mdgan.transport.links_pb2 import Piece

PIECE_BYTES = 1 << 20  # the most bytes of a body in one piece
_BEFORE_DATA = Piece(data=bytes(PIECE_BYTES)).SerializeToString()[:-PIECE_BYTES]
"""The bytes of a full piece before its data; data is the last field."""
MOST_BYTES = 1 << 34  # the largest body that may be announced
OF_A_HEAD = 80
"""How many times its size a head takes in memory once decoded: 20 to 31 times for lists within
lists, 79 times for tensors without elements (measured with Python 3.11)."""
_MOST_DIMENSIONS = 16
_KIND = re.compile("[A-Z]{1,16}")
_LENGTH = struct.Struct("<Q")
_DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.int16},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8},
    "BOOL": np.bool_,
}


class Most(NamedTuple):
    """Limits of one kind of message: how large it may be, and how many a peer may send."""

    body_bytes: int  # the largest body
    # The largest head: the JSON in a body, with fields and the names of tensors. Once decoded it
    # takes up to `OF_A_HEAD` times its size.
    head_bytes: int
    a_second: float = inf  # most messages a second on average; more than `MOST_IN_A_ROW` end a link
    unasked: float = inf  # most messages that answer nothing
    each: int = 1  # how many more a peer may send for each message of the kind `answers`
    answers: str = ""  # the kind of the server's message that they answer; empty for any

    @property
    def held_bytes(self) -> int:
        """The most memory that one message within these limits takes once it is decoded."""
        return self.body_bytes + OF_A_HEAD * min(self.head_bytes, self.body_bytes)


class WireError(RuntimeError):
    """Bytes that are no message: damaged, not expected, or not mdgan's."""


class CutOff(WireError):
    """The stream has ended within a message, for example because a connection was cut."""


@dataclass(frozen=True)
class Frame:
    """A message as bytes: a safetensors file; `taker` is the host that a parcel is for, or 0."""

    kind: str
    iteration: int
    body: bytes
    taker: int = 0

    @property
    def held_bytes(self) -> int:
        """The most memory that the message takes once it is decoded."""
        return len(self.body) + OF_A_HEAD * min(_head_bytes(self.body), len(self.body))

    @cached_property
    def pieces(self) -> list[bytes]:
        """The pieces that a stream carries; made once for all hosts that get the message."""
        size, body = len(self.body), memoryview(self.body)
        first = Piece(kind=self.kind, iteration=self.iteration, size=size, taker=self.taker)
        begins = [first, *(Piece() for _ in range(PIECE_BYTES, size, PIECE_BYTES))]
        return [
            _piece(begin, body[n * PIECE_BYTES : (n + 1) * PIECE_BYTES])
            for n, begin in enumerate(begins)
        ]


def encode(message: Message) -> Frame:
    """Turns a message into bytes, which share no memory with its tensors.

    Raises:
        ValueError: the kind is not one to sixteen capital letters.
    """
    if not _KIND.fullmatch(message.kind):
        raise ValueError(f"{message.kind!r:.40}: a kind has one to sixteen capital letters")
    fields = json.dumps(message.fields, separators=(",", ":"))
    # safetensors needs them in this machine's memory, contiguous.
    tensors = {name: tensor.cpu().contiguous() for name, tensor in message.tensors.items()}
    # Several times faster than `safetensors.torch.save`, which matters where tensors are small.
    specs = {
        name: safetensors.TensorSpec(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=list(tensor.shape),
            data_ptr=tensor.data_ptr(),
            data_len=tensor.nbytes,
        )
        for name, tensor in tensors.items()
    }
    body = safetensors.serialize(specs, {"fields": fields})
    return Frame(str(message.kind), message.iteration, body)


def decode(frame: Frame) -> Message:
    """Reads the message in a frame; its tensors do not share the frame's memory.

    Raises:
        WireError: the frame holds no message.
    """
    try:
        # safetensors gives this function no types.
        items = safetensors.deserialize(frame.body)  # type: ignore[no-untyped-call] # see above
        (length,) = _LENGTH.unpack_from(frame.body)
        header = json.loads(frame.body[_LENGTH.size : _LENGTH.size + length])
        fields = json.loads(header["__metadata__"]["fields"])
        if not isinstance(fields, dict):
            raise TypeError("its fields are no object")
        entries = dict(items)
        # In the header's order, as the library's order differs from process to process.
        tensors = {name: _tensor(entries[name]) for name in header if name in entries}
    # A RecursionError, for lists within lists, is a RuntimeError.
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise WireError(f"damaged {frame.kind} message: {one_line(error)}") from error
    return Message(frame.kind, frame.iteration, fields, tensors=tensors)


def next_frame(pieces: Iterator[Piece], accepts: Mapping[str, Most]) -> Frame | None:
    """Joins the pieces of the next message on a stream; None if the stream has ended.

    Args:
        accepts: the kinds that may come, with limits. A larger message is refused after its first
            piece, before memory is taken for the rest.

    Raises:
        WireError: the message is of another kind, too large, or in pieces of a wrong size.
    """
    first = next(pieces, None)
    if first is None:
        return None
    most = check_expected(first.kind, first.size, accepts)
    check_head(first.kind, first.data, most)
    parts: list[bytes] = []
    piece, missing = first, first.size
    while True:
        # Pieces of a byte each would take many times the memory of the body.
        if len(piece.data) != min(missing, PIECE_BYTES):
            raise WireError(f"a {first.kind} message comes in pieces of a wrong size")
        parts.append(piece.data)
        missing -= len(piece.data)
        if not missing:
            break
        following = next(pieces, None)
        if following is None:
            raise CutOff(f"a {first.kind} message ends too early")
        if following.kind:
            raise WireError(f"a {first.kind} message ends too early")
        piece = following
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    return Frame(first.kind, first.iteration, body, taker=first.taker)


def frames_of(pieces: Iterator[Piece], accepts: Mapping[str, Most]) -> Iterator[Frame]:
    """All messages on a stream; see `next_frame`."""
    while (frame := next_frame(pieces, accepts)) is not None:
        yield frame


def check_expected(kind: str, size: int, accepts: Mapping[str, Most]) -> Most:
    """Checks the kind and size that a peer announces; returns the limits of that kind.

    Raises:
        WireError: the kind is not expected, or the size is too large.
    """
    most = accepts.get(kind)
    if most is None:
        raise WireError(f"a {one_line(kind):.20} message is not expected")
    if size > min(most.body_bytes, MOST_BYTES):
        raise WireError(f"a {kind} message of {size} bytes, at most {most.body_bytes} are expected")
    return most


def check_head(kind: str, begin: bytes | bytearray, most: Most) -> None:
    """Checks how much JSON a body holds, as its first bytes say.

    Raises:
        WireError: the body holds too much JSON.
    """
    if (head_bytes := _head_bytes(begin)) > most.head_bytes:
        raise WireError(
            f"a {kind} message with {head_bytes} bytes of JSON, at most {most.head_bytes} are "
            "expected"
        )


def _head_bytes(body: bytes | bytearray) -> int:
    """The length of a body's JSON, as its first bytes say; 0 if there are too few bytes."""
    return int(_LENGTH.unpack_from(body)[0]) if len(body) >= _LENGTH.size else 0


def _piece(begin: Piece, data: memoryview) -> bytes:
    """Serializes a piece with its data; protobuf would copy a full piece's data three times."""
    if len(data) == PIECE_BYTES:
        return b"".join((begin.SerializeToString(), _BEFORE_DATA, data))
    begin.data = bytes(data)
    return begin.SerializeToString()


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    name, shape, data = entry["dtype"], entry["shape"], entry["data"]
    if len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"a tensor of {len(shape)} dimensions")
    if name == "BOOL" and data and max(data) > 1:
        raise ValueError("a truth value is neither 0 nor 1")
    # By numpy: torch's operations take several times longer in a thread that only reads.
    tensor = torch.from_numpy(np.frombuffer(data, _DTYPES[name]).reshape(shape))
    return tensor.view(torch.bfloat16) if name == "BF16" else tensor
