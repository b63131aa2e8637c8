"""Manifests and states of arbitrary bytes count as damaged; readers raise no other error."""

import json
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
from tests.fuzz.seeds import mutations, search_a_minute
from tests.unit.storage.test_manifest import sealed

MANIFEST = checkpoints.first_manifest(StoredFile("server.safetensors", "0" * 64, 8)).as_bytes()
STATE = save({"weight": torch.ones(2, 3), "step": torch.tensor(7), "bits": torch.ones(5).byte()})

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


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


@settings(deadline=None, max_examples=150)
@given(
    st.binary(max_size=300)
    | mutations(st.just(MANIFEST))
    | json_values.map(json.dumps).map(str.encode)
)
@example(MANIFEST)
@example(b"[" * 100_000)
@example(b'{"iteration": ' + b"9" * 5000 + b"}")
@example(b'{"format": 1e999, "sha256": NaN}')
@example(b'{"format": 1, "files": {"\\ud800": {}}}')
def test_any_bytes_as_a_manifest(data: bytes) -> None:
    checkpoints.read_any_manifest(data)


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(sorted(json.loads(MANIFEST))), json_values, min_size=1, max_size=2
    )
)
@example({"seconds": 10**400})
@example({"version": "x" * 10_000, "format": 2})
def test_any_value_in_a_manifest(changes: dict[str, Any]) -> None:
    checkpoints.read_manifest(sealed({**json.loads(MANIFEST), **changes}))


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=300) | mutations(st.just(STATE)) | headers())
@example(STATE)
@example(b"")
@example((2**64 - 1).to_bytes(8, "little"))
@example((2).to_bytes(8, "little") + b"{}")
def test_any_bytes_as_a_state(data: bytes) -> None:
    checkpoints.read_any_state(data)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300) | mutations(st.just(MANIFEST)))
@example(b"")
def test_any_bytes_in_the_newest_checkpoint(data: bytes) -> None:
    checkpoints.find_newest(data)


def test_the_inputs_that_fuzzing_starts_from_are_whole() -> None:
    assert checkpoints.read_manifest(MANIFEST) == Manifest.from_bytes(MANIFEST)
    assert checkpoints.read_any_state(STATE) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "seed"),
    [("read_any_manifest", MANIFEST), ("read_any_state", STATE), ("find_newest", MANIFEST)],
)
def test_a_minute_of_inputs_that_reach_new_lines(tmp_path: Path, target: str, seed: bytes) -> None:
    search_a_minute(f"tests.fuzz.checkpoints:{target}", [seed], tmp_path)
