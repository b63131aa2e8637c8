"""Bytes that are right, from which a fuzzer starts."""

import json
import struct
from datetime import timedelta
from functools import cache

import torch
from cryptography.hazmat.primitives.serialization import Encoding

from mdgan import messages
from mdgan.credentials.authority import make_authority
from mdgan.credentials.pem import now
from mdgan.messages import Kind, Message
from mdgan.transport.frames import Frame, encode


@cache
def seeds(name: str) -> list[bytes]:
    """Some for each of `targets.TARGETS`."""
    said = {"purpose": "join", "host": 1, "workers": [1, 2], "num_samples": {}}
    hello = encode(Message(Kind.HELLO, 0, said))
    state = encode(
        messages.state(3, {1: {"model.w": torch.ones(2, 3), "step": torch.tensor(1)}}, "checkpoint")
    )
    empty = Frame(Kind.STATE, 1, b"")
    table = {
        "1/w": {"dtype": "F32", "shape": [2, 8], "data_offsets": [0, 64]},
        "1/b": {"dtype": "BOOL", "shape": [0], "data_offsets": [64, 64]},
    }
    return {
        "body": lambda: [hello.body, state.body, encode(Message("SWAP", 1)).body],
        "table": lambda: [json.dumps(table)[1:-1].encode(), b""],
        "fields": lambda: [json.dumps(said).encode(), b"[]", b"{}"],
        "pieces": lambda: [_prefixed(hello), _prefixed(empty) + _prefixed(hello)],
        "permit": _certificates,
    }[name]()


def _prefixed(frame: Frame) -> bytes:
    return b"".join(struct.pack("<H", len(piece)) + piece for piece in frame.pieces)


def _certificates() -> list[bytes]:
    clock, days = now(), timedelta(days=2)
    authority = make_authority(days, clock)
    issued = [
        authority.issue("hospital-a", "worker", [3, 4], days, clock)[0],
        authority.issue("shared", None, [], days, clock)[0],
        authority.certificate,
    ]
    return [certificate.public_bytes(Encoding.DER) for certificate in issued]
