"""Any bytes as a manifest or a state: damaged, never another exception."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import StoredFile
from tests.fuzz import checkpoints

MANIFEST = checkpoints.first_manifest(StoredFile("server.safetensors", "0" * 64, 8)).as_bytes()
STATE = save({"weight": torch.ones(2, 3), "step": torch.tensor(7), "bits": torch.ones(5).byte()})

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def mutations(whole: bytes) -> st.SearchStrategy[bytes]:
    """A file with some of its bytes cut out and others put in."""

    def mutate(changes: list[tuple[int, int, bytes]]) -> bytes:
        data = whole
        for place, num_gone, new in changes:
            place %= len(data) + 1
            data = data[:place] + new + data[place + num_gone :]
        return data

    change = st.tuples(st.integers(0, 10**6), st.integers(0, 40), st.binary(max_size=8))
    return st.lists(change, max_size=4).map(mutate)


def headers() -> st.SearchStrategy[bytes]:
    """State files with a header that is JSON, and says anything."""
    entry = st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "F64", "U8", "BOOL", "F8_E4M3", "C64", "F4", "X"]),
            "shape": st.lists(st.integers(-1, 2**64) | st.integers(0, 3), max_size=3),
            "data_offsets": st.lists(st.integers(0, 40) | st.integers(0, 2**64), max_size=3),
        }
    )
    tables = st.dictionaries(st.text(max_size=5), entry | json_values, max_size=3)

    def build(table: dict[str, Any], size: int | None, body: bytes) -> bytes:
        text = json.dumps(table).encode()
        return (len(text) if size is None else size).to_bytes(8, "little") + text + body

    sizes = st.none() | st.integers(0, 2**64 - 1)
    return st.builds(build, tables, sizes, st.binary(max_size=48))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300) | mutations(MANIFEST) | json_values.map(json.dumps).map(str.encode))
@example(MANIFEST)
@example(b"[" * 100_000)
@example(b'{"iteration": ' + b"9" * 5000 + b"}")
@example(b'{"format": 1e999, "sha256": NaN}')
@example(b'{"format": 1, "files": {"\\ud800": {}}}')
def test_any_bytes_as_a_manifest(data: bytes) -> None:
    checkpoints.read_any_manifest(data)


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(sorted(json.loads(MANIFEST))), json_values, min_size=1, max_size=2
    )
)
@example({"seconds": 10**400})
@example({"version": "x" * 10_000, "format": 2})
def test_any_value_in_a_manifest(changes: dict[str, Any]) -> None:
    checkpoints.read_manifest(checkpoints.sealed({**json.loads(MANIFEST), **changes}))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300) | mutations(STATE) | headers())
@example(STATE)
@example(b"")
@example((2**64 - 1).to_bytes(8, "little"))
@example((2).to_bytes(8, "little") + b"{}")
def test_any_bytes_as_a_state(data: bytes) -> None:
    checkpoints.read_any_state(data)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300) | mutations(MANIFEST))
@example(b"")
def test_any_bytes_in_the_newest_checkpoint(data: bytes) -> None:
    checkpoints.find_newest(data)


def test_the_inputs_that_fuzzing_starts_from_are_whole() -> None:
    assert checkpoints.read_manifest(MANIFEST) == Manifest.from_bytes(MANIFEST)
    assert checkpoints.read_any_state(STATE) is not None


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize(
    ("target", "seed"),
    [("read_any_manifest", MANIFEST), ("read_any_state", STATE), ("find_newest", MANIFEST)],
)
def test_a_minute_of_inputs_that_reach_new_lines(tmp_path: Path, target: str, seed: bytes) -> None:
    (tmp_path / "seed").write_bytes(seed)
    name = f"tests.fuzz.checkpoints:{target}"
    command = [sys.executable, "-m", "tests.fuzz.run_atheris", name, "60", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert told.returncode == 0, told.stderr[-3000:]
    assert "Done" in told.stderr, told.stderr[-3000:]
    assert not list(tmp_path.glob("failing-*"))
