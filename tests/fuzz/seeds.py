"""Bytes that are right, from which a fuzzer starts."""

import json
import struct

import torch
from mdgan.transport.handshake import client_proof, greeting
from mdgan.transport.wire import HEADER_BYTES, decode_header, encode

from mdgan import messages
from mdgan.messages import Message

_NONCE = bytes(range(32))


def seeds(name: str) -> list[bytes]:
    """Some for each of `targets.TARGETS`."""
    hello = messages.hello({"purpose": "join", "host": 1, "workers": [1, 2], "num_samples": {}})
    state = messages.state(
        3, {1: {"model.w": torch.ones(2, 3), "step": torch.tensor(1)}}, "checkpoint"
    )
    table = [["1/w", "float32", [2, 8], 0], ["1/b", "bool", [0], 64]]
    return {
        "header": [_raw(message)[:HEADER_BYTES] for message in (hello, state)],
        "body": [_with_cut(message) for message in (hello, state)],
        "table": [json.dumps(table).encode(), b"[]", b'[["w","int64",[8],0]]'],
        "greeting": [greeting(_NONCE), greeting(_NONCE, version=9)],
        "handshake": [greeting(_NONCE) + client_proof(b"", _NONCE, _NONCE), greeting(_NONCE)],
        "hello": [_raw(hello), _raw(messages.bye()), _raw(messages.pulse()) + _raw(hello)],
    }[name]


def _raw(message: Message) -> bytes:
    header, body = encode(message)
    return bytes(header.numpy().data) + bytes(body.numpy().data)


def _with_cut(message: Message) -> bytes:
    header, body = encode(message)
    return struct.pack("<H", decode_header(header).fields_bytes) + bytes(body.numpy().data)
