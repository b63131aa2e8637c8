"""What strangers' bytes go through; each takes any bytes and must raise nothing of its own.

A target lets the errors pass that its reader is documented to raise, and checks what it returns.
"""

import contextlib
import socket
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from mdgan.transport.handshake import (
    GREETING_BYTES,
    HandshakeFailed,
    as_client,
    as_server,
    greeting,
    read_greeting,
)
from mdgan.transport.link import Link
from mdgan.transport.tcp_server import HELLO_BYTES

from mdgan.messages import Kind
from mdgan.transport import wire
from mdgan.transport.until import Until

KEY = b"a secret that no stranger knows"
_SECONDS = 10.0


def fuzz_header(content: bytes) -> None:
    """What announces a body, with and without a checksum that fits."""
    content = content.ljust(wire.HEADER_BYTES, b"\0")[: wire.HEADER_BYTES]
    begun = b"mdg3" + content[4:-4]
    named = b"mdg3" + Kind.HELLO.encode().ljust(16, b"\0") + content[20:-4]
    checked = [part + struct.pack("<I", zlib.crc32(part)) for part in (content[:-4], begun, named)]
    for header in (content, *checked):
        with contextlib.suppress(wire.WireError):
            read = wire.decode_header(_tensor(header), {Kind.HELLO: HELLO_BYTES})
            assert read.kind == Kind.HELLO
            assert 0 <= read.fields_bytes <= read.body_bytes <= HELLO_BYTES


def fuzz_body(content: bytes) -> None:
    """A body whose checksum fits: the first two bytes say where its JSON part ends."""
    if len(content) < 3:
        return
    (cut,) = struct.unpack_from("<H", content)
    body = content[2:]
    fields_bytes = min(cut, len(body)) // 16 * 16
    header = wire.Header(Kind.STATE, 1, fields_bytes, len(body), zlib.crc32(body))
    with contextlib.suppress(wire.WireError):
        message = wire.decode(header, _tensor(body))
        assert isinstance(message.fields, dict)
        size = sum(t.numel() * t.element_size() for t in message.tensors.values())
        assert size <= len(body)  # never more memory than what came


def fuzz_table(content: bytes) -> None:
    """A body that is right but for its table of tensors, which is JSON of the stranger's."""
    text = b'{"fields":{},"tensors":' + content.replace(b"\0", b"") + b"}"
    text = text.ljust(-(-len(text) // 16) * 16)
    fuzz_body(struct.pack("<H", len(text) & 0xFFFF) + text + bytes(64))


def fuzz_greeting(content: bytes) -> None:
    """The first bytes of a connection."""
    content = content.ljust(GREETING_BYTES, b"\0")[:GREETING_BYTES]
    with contextlib.suppress(HandshakeFailed):
        assert greeting(read_greeting(content)) == content


def fuzz_handshake(content: bytes) -> None:
    """Both sides of a handshake, each with a stranger at the other end."""
    for end in (as_server, as_client):
        here, there = _pair()
        with here, there:
            here.sendall(content)
            here.shutdown(socket.SHUT_WR)
            with contextlib.suppress(HandshakeFailed):
                end(there, KEY, Until(_SECONDS))
                raise AssertionError("a stranger was let in")


def fuzz_hello(content: bytes) -> None:
    """The first message after a peer has proved that it knows the token."""
    here, there = _pair()
    link = Link(there, {Kind.HELLO: HELLO_BYTES}, _SECONDS)
    try:
        here.sendall(content)
        here.shutdown(socket.SHUT_WR)
        with contextlib.suppress(RuntimeError):
            message, num_bytes = link.receive(Until(_SECONDS))
            assert message.kind in (Kind.HELLO, Kind.BYE)
            assert num_bytes <= len(content)
    finally:
        link.close()
        here.close()


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "header": fuzz_header,
    "body": fuzz_body,
    "table": fuzz_table,
    "greeting": fuzz_greeting,
    "handshake": fuzz_handshake,
    "hello": fuzz_hello,
}


def _tensor(content: bytes) -> torch.Tensor:
    if not content:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _pair() -> tuple[Any, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        return here, listener.accept()[0]
