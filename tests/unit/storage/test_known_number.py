"""What a run has found out about its machine, from its file."""

from pathlib import Path

import pytest

from mdgan.storage.known_number import KnownNumber


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mdgan"


def test_the_next_run_knows_it(cache: Path) -> None:
    assert KnownNumber("slots", "models", 8).read() is None
    KnownNumber("slots", "models", 8).write(3)
    assert KnownNumber("slots", "models", 8).read() == 3
    assert KnownNumber("slots", "other models", 8).read() is None
    assert [path.parent for path in cache.rglob("*.json")] == [cache / "slots"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"slots": 9}', '{"slots": 0}', '{"slots": "3"}'])
def test_a_file_that_makes_no_sense_is_as_none(cache: Path, text: str) -> None:
    known = KnownNumber("slots", "models", 8)
    known.write(3)
    (file,) = cache.rglob("*.json")
    file.write_text(text)
    assert known.read() is None
