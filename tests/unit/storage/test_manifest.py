"""The manifest is read as it was written, or known to be damaged."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mdgan.storage.manifest import Manifest, Newer
from mdgan.storage.state_file import Damaged, StoredFile
from tests.marks import examples
from tests.unit.storage.small import STORED, make_manifest


def sealed(record: dict[str, Any]) -> bytes:
    """A manifest's file with the right checksum, and any contents."""
    record = {name: value for name, value in record.items() if name != "sha256"}
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return json.dumps({**record, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}).encode()


def record_of(manifest: Manifest) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(manifest.as_bytes())
    return record


def refusal(data: bytes) -> str:
    with pytest.raises(Damaged) as refused:
        Manifest.from_bytes(data)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 200
    return str(refused.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
worker_sets = st.sets(st.integers(1, 10_000), max_size=5)


@settings(deadline=None, max_examples=examples(24))
@given(
    st.builds(
        Manifest,
        iteration=st.integers(0),
        generation=st.integers(0),
        progress=st.dictionaries(st.text(), st.integers(0)),
        seconds=st.floats(0, allow_nan=False, allow_infinity=False),
        workers=st.just(()),
        files=st.just({"server": STORED}),
        elsewhere=st.just(()),
        settings=st.dictionaries(st.text(), json_values),
        version=st.text(),
    ),
    worker_sets,
    worker_sets,
)
def test_a_manifest_comes_back(manifest: Manifest, here: set[int], away: set[int]) -> None:
    away -= here
    files = {str(n): StoredFile(f"worker-{n}", f"{n:064x}", n) for n in here | away}
    manifest = replace(
        manifest,
        workers=tuple(sorted(here | away)),
        elsewhere=tuple(sorted(away)),
        files={**manifest.files, **files},
    )
    back = Manifest.from_bytes(manifest.as_bytes())
    assert back == manifest
    assert {stored.name for stored in back.here()} == {STORED.name, *(f"worker-{n}" for n in here)}


def test_any_other_byte_anywhere_is_found() -> None:
    data = make_manifest().as_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        try:
            decoded = Manifest.from_bytes(bytes(changed))
        except Damaged:
            continue
        # Only what means nothing may change: a space between two values.
        assert decoded == make_manifest()
        assert data[place : place + 1].isspace()


NO_COUNTS: list[Any] = [-1, 1.5, True, "1", None]
JUNK: list[Any] = [[0], [-1], [1, 1], ["1"], [True], "12", {}, None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *(({"iteration": value}, "iteration") for value in NO_COUNTS),
        *(({"generation": value}, "generation") for value in NO_COUNTS),
        *(({"progress": {"swaps": value}}, "progress") for value in NO_COUNTS),
        *(({"seconds": value}, "seconds") for value in (-0.5, "1", None, True)),
        *(({"seconds": value}, "seconds") for value in (float("inf"), float("nan"))),
        *(({name: value}, name) for name in ("workers", "elsewhere") for value in JUNK),
        *(({name: []}, name) for name in ("progress", "settings", "files", "version", "novelty")),
        ({"files": {}}, "files belong to"),
        ({"files": {"1": STORED.as_record()}}, "files belong to"),
        ({"files": {"server": STORED.as_record(), "7": STORED.as_record()}}, "files belong to"),
        ({"files": {"server": STORED.as_record(), "01": STORED.as_record()}}, "files belong to"),
        ({"files": {"server": STORED.as_record(), "1": STORED.as_record()}}, "one file twice"),
        ({"files": {"server": {}}}, "field `name` - at `$.files"),
        ({"files": {"server": {**STORED.as_record(), "name": "../x"}}}, "name`"),
        ({"elsewhere": [1]}, "workers without files"),
        *(({"format": value}, "no format") for value in (0, 1, "2", True, None)),
    ],
)
def test_a_manifest_that_says_the_impossible_is_damaged(
    change: dict[str, Any], reason: str
) -> None:
    record = record_of(make_manifest())
    assert Manifest.from_bytes(sealed(record)) == make_manifest()
    assert reason in refusal(sealed({**record, **change}))


def test_a_newer_format_is_told_from_damage() -> None:
    record = {**record_of(make_manifest()), "format": 3, "version": "1.7.0", "novelty": []}
    with pytest.raises(Newer, match=r"written in format 3 by mdgan 1\.7\.0"):
        Manifest.from_bytes(sealed(record))
    with pytest.raises(Damaged, match="checksum") as refused:
        Manifest.from_bytes(json.dumps(record).encode())
    assert not isinstance(refused.value, Newer)


def test_a_manifest_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="workers without files"):
        make_manifest(elsewhere=[1]).as_bytes()
    with pytest.raises(ValueError, match="iteration"):
        make_manifest(-1).as_bytes()
