"""Makes correct bytes from which a fuzzer starts, and damages them."""

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
import torch
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import strategies as st

from mdgan import messages
from mdgan.credentials.authority import make_authority
from mdgan.credentials.pem import now
from mdgan.messages import Kind, Message
from mdgan.transport.frames import Frame, encode
from tests.processes import REPOSITORY, environment


@cache
def seeds(name: str) -> list[bytes]:
    """Some for each of `targets.TARGETS`."""
    fields = {"purpose": "join", "host": 1, "workers": [1, 2], "num_samples": {}}
    hello = encode(Message(Kind.HELLO, 0, fields))
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
        "fields": lambda: [json.dumps(fields).encode(), b"[]", b"{}"],
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


def mutations(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """A file with some of its bytes cut out and others put in."""

    def mutate(data: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
        for place, num_gone, new in changes:
            at = int(place * len(data))
            data = data[:at] + new + data[at + num_gone :]
        return data

    # Most headers are at the beginning.
    places = st.floats(0, 1) | st.floats(0, 0.02)
    puts = st.binary(max_size=6) | st.sampled_from([b"\xff\xff\xff\xff", b"\0\0\0\0", b"9" * 30])
    change = st.tuples(places, st.sampled_from([0, 1, 4, 50]), puts)
    return st.builds(mutate, whole, st.lists(change, min_size=1, max_size=3))


def search_a_minute(target: str, whole: Sequence[bytes], folder: Path) -> None:
    """Feeds `MODULE:FUNCTION` for a minute with what reaches new lines; it must not raise."""
    pytest.importorskip("atheris", reason="atheris is not installed")
    for number, seed in enumerate(whole):
        (folder / f"seed-{number}").write_bytes(seed)
    command = [sys.executable, "-m", "tests.fuzz.run_atheris", target, "60", str(folder)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=REPOSITORY, env=environment()
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Done" in ended.stderr, ended.stderr[-3000:]
    assert not list(folder.glob("failing-*"))
