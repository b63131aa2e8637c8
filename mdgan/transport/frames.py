"""Messages as bytes: a safetensors file, with the fields as JSON in its metadata, in pieces.

How much of each kind may come from a peer: a message at a time, and how many.

Bytes may come from anywhere: what is not a message is a `WireError`.
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
"""What a whole piece has before its data, which are the last of its fields."""
MOST_BYTES = 1 << 34  # the largest body that is believed
OF_A_HEAD = 80
"""How many times its size a head takes as values: 20 to 31 times as lists within lists, 79 times as
tensors without elements (measured with Python 3.11)."""
_MOST_DIMENSIONS = 16
_KIND = re.compile("[A-Z]{1,16}")
_LENGTH = struct.Struct("<Q")
_DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.int16},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8},
    "BOOL": np.bool_,
}


class Most(NamedTuple):
    """The most that may come of one kind of message."""

    body_bytes: int  # of its body
    # Of the JSON in its body, which holds its fields and names its tensors. JSON takes many times
    # its size as values: `OF_A_HEAD`.
    head_bytes: int
    a_second: float = inf  # messages, on average; what comes beyond `MOST_IN_A_ROW` ends the link
    unasked: float = inf  # messages that come by themselves
    each: int = 1  # messages more for each that the server sends of the kind that they answer
    answers: str = ""  # that kind; empty for any

    @property
    def held_bytes(self) -> int:
        """The most memory that one message takes once it is decoded."""
        return self.body_bytes + OF_A_HEAD * min(self.head_bytes, self.body_bytes)


class WireError(RuntimeError):
    """Bytes that are not a message: damaged, not expected, or not mdgan's."""


class CutOff(WireError):
    """The stream has ended within a message, as when a connection is cut."""


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
        """What goes over a stream; made once, however many hosts get it."""
        size, body = len(self.body), memoryview(self.body)
        first = Piece(kind=self.kind, iteration=self.iteration, size=size, taker=self.taker)
        begins = [first, *(Piece() for _ in range(PIECE_BYTES, size, PIECE_BYTES))]
        return [
            _piece(begin, body[n * PIECE_BYTES : (n + 1) * PIECE_BYTES])
            for n, begin in enumerate(begins)
        ]


def encode(message: Message) -> Frame:
    """A message as bytes of its own.

    Raises:
        ValueError: its kind cannot be written.
    """
    if not _KIND.fullmatch(message.kind):
        raise ValueError(f"{message.kind!r:.40}: a kind has one to sixteen capital letters")
    fields = json.dumps(message.fields, separators=(",", ":"))
    # As safetensors wants them: in this machine's memory, their elements one by one.
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
    """The message in a frame; its tensors lie in memory of their own.

    Raises:
        WireError: there is none.
    """
    try:
        # safetensors gives this function no types.
        read = safetensors.deserialize(frame.body)  # type: ignore[no-untyped-call] # see above
        (length,) = _LENGTH.unpack_from(frame.body)
        header = json.loads(frame.body[_LENGTH.size : _LENGTH.size + length])
        fields = json.loads(header["__metadata__"]["fields"])
        if not isinstance(fields, dict):
            raise TypeError("its fields are no object")
        entries = dict(read)
        # In the order of the header: that of the library differs from process to process.
        tensors = {name: _tensor(entries[name]) for name in header if name in entries}
    # A RecursionError, for lists within lists, is a RuntimeError.
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise WireError(f"damaged {frame.kind} message: {one_line(error)}") from error
    return Message(frame.kind, frame.iteration, fields, tensors=tensors)


def next_frame(pieces: Iterator[Piece], accepts: Mapping[str, Most]) -> Frame | None:
    """Puts the next message on a stream together; None if the stream has ended.

    Args:
        accepts: the kinds that may come. What is larger is refused before memory is taken for more
            than its first piece.

    Raises:
        WireError: something else comes.
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
    """The most that may come of a kind of message, of which one is announced.

    Raises:
        WireError: it is not expected, or too large.
    """
    most = accepts.get(kind)
    if most is None:
        raise WireError(f"a {one_line(kind):.20} message is not expected")
    if size > min(most.body_bytes, MOST_BYTES):
        raise WireError(f"a {kind} message of {size} bytes, at most {most.body_bytes} are expected")
    return most


def check_head(kind: str, begin: bytes | bytearray, most: Most) -> None:
    """Checks how much JSON a body holds, by its first bytes.

    Raises:
        WireError: it is too much.
    """
    if (head_bytes := _head_bytes(begin)) > most.head_bytes:
        raise WireError(
            f"a {kind} message with {head_bytes} bytes of JSON, at most {most.head_bytes} are "
            "expected"
        )


def _head_bytes(body: bytes | bytearray) -> int:
    """How long the JSON of a body is, as its first bytes say; 0 if there are too few."""
    return int(_LENGTH.unpack_from(body)[0]) if len(body) >= _LENGTH.size else 0


def _piece(begin: Piece, data: memoryview) -> bytes:
    """A piece with its data, as protobuf writes it; of most data it would make three copies."""
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
    # By numpy, as torch's own operations cost several times more in a thread that only reads.
    tensor = torch.from_numpy(np.frombuffer(data, _DTYPES[name]).reshape(shape))
    return tensor.view(torch.bfloat16) if name == "BF16" else tensor
