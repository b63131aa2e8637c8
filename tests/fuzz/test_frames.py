"""The server refuses strangers' bytes, and never by an error of another kind."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import mutations, search_a_minute, seeds
from tests.fuzz.targets import TARGETS
from tests.marks import examples

NAMES = pytest.mark.parametrize("name", TARGETS)
quick = settings(deadline=None, max_examples=examples(50))


@NAMES
@quick
@given(st.data())
def test_right_bytes_bent(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(mutations(st.sampled_from(seeds(name)))))


@NAMES
@quick
@given(st.binary(max_size=300))
def test_any_bytes(name: str, content: bytes) -> None:
    TARGETS[name](content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "I8", "BOOL", "BF16", "F8_E5M2", "U64"]) | json_values,
        "shape": st.lists(st.integers(-2, 9), max_size=4) | json_values,
        "data_offsets": st.lists(st.integers(-8, 80), max_size=3) | json_values,
    }
)


@quick
@given(st.dictionaries(st.text(max_size=4), entries | json_values, max_size=3))
def test_any_table_of_tensors(table: object) -> None:
    TARGETS["table"](json.dumps(table)[1:-1].encode())


@quick
@given(json_values)
def test_any_fields(fields: object) -> None:
    TARGETS["fields"](json.dumps(fields).encode())


@NAMES
def test_bytes_to_start_from_are_right_themselves(name: str) -> None:
    for seed in seeds(name):
        TARGETS[name](seed)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"9" * 60_000,
        b'"w":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,64]}',
        b'"w":{"dtype":"F32","shape":[1e400],"data_offsets":[0,64]}',
        b'"w":{"dtype":"F32","shape":[NaN],"data_offsets":[0,64]}',
        b'"w":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}',
        b'"\\ud800":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}',
    ],
)
def test_json_made_to_hurt(content: bytes) -> None:
    TARGETS["table"](content)
    TARGETS["fields"](content)


@pytest.mark.slow
@NAMES
def test_a_minute_of_search(name: str, tmp_path: Path) -> None:
    search_a_minute(f"tests.fuzz.targets:fuzz_{name}", seeds(name), tmp_path)
