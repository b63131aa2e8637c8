"""What strangers' bytes go through; each takes any bytes and must raise nothing of its own.

A target lets the errors pass that its reader is documented to raise, and checks what it returns.
"""

import base64
import contextlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping

from google.protobuf.message import DecodeError

from mdgan.credentials.permit import ROLES, permit_of
from mdgan.messages import Kind
from mdgan.transport.frames import Frame, Most, WireError, decode, next_frame
from mdgan.transport.links_pb2 import Piece

_DATA = bytes(64)
HELLO = Most(1 << 16, 1 << 16)
_FIELDS = b'"__metadata__":{"fields":"{}"}'


def fuzz_body(content: bytes) -> None:
    """The body of a message."""
    with contextlib.suppress(WireError):
        message = decode(Frame(Kind.STATE, 1, content))
        assert isinstance(message.fields, dict)
        size = sum(t.numel() * t.element_size() for t in message.tensors.values())
        assert size <= len(content)  # never more memory than what came


def fuzz_table(content: bytes) -> None:
    """A body that is right but for its table of tensors, which is JSON of the stranger's."""
    _with_header(b"{" + _FIELDS + b"," * bool(content) + content + b"}")


def fuzz_fields(content: bytes) -> None:
    """A body that is right but for its fields, which are JSON of the stranger's."""
    fields = json.dumps(content.decode("utf-8", "replace"))
    _with_header(b'{"__metadata__":{"fields":' + fields.encode() + b"}}", b"")


def fuzz_pieces(content: bytes) -> None:
    """What comes on a stream; two bytes before each piece say how long it is."""
    coming = _pieces(content)
    accepts: dict[str, Most] = {Kind.HELLO: HELLO, Kind.STATE: Most(300, 300)}
    with contextlib.suppress(WireError):
        while (frame := next_frame(coming, accepts)) is not None:
            assert frame.kind in (Kind.HELLO, Kind.STATE)
            assert len(frame.body) <= min(len(content), HELLO.body_bytes)
            fuzz_body(frame.body)


def fuzz_permit(content: bytes) -> None:
    """What a certificate says that its owner may do; TLS has checked who signed it."""
    text = base64.encodebytes(content)
    pem = b"-----BEGIN CERTIFICATE-----\n" + text + b"-----END CERTIFICATE-----\n"
    for shown in (pem, content):
        with contextlib.suppress(ValueError):
            permit = permit_of(shown)
            assert permit.role is None or permit.role in ROLES
            assert permit.name.isprintable()
            assert permit.ranks is None or all(rank >= 0 for rank in permit.ranks)
            for role in ROLES:
                permit.refusal(role, [1, 10**8])


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "body": fuzz_body,
    "table": fuzz_table,
    "fields": fuzz_fields,
    "pieces": fuzz_pieces,
    "permit": fuzz_permit,
}


def _with_header(header: bytes, data: bytes = _DATA) -> None:
    fuzz_body(struct.pack("<Q", len(header)) + header + data)


def _pieces(content: bytes) -> Iterator[Piece]:
    while len(content) > 1:
        (length,) = struct.unpack_from("<H", content)
        try:
            yield Piece.FromString(content[2 : 2 + length])
        except DecodeError:  # gRPC ends such a stream
            return
        content = content[2 + length :]
