"""Files that are whole or do not exist, and a number that a run keeps in such a file."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mdgan.storage.known_number import KnownNumber
from mdgan.storage.whole_file import make_folder, sync_folder, whole_file, write_whole


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def fail_with_full_disk(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with monkeypatch.context() as patched:
        patched.setattr(failing, fail_with_full_disk)
        with pytest.raises(OSError, match="No space left"):
            write_whole(path, b"new")
    assert everything_in(tmp_path) == {"file": b"old"}
    write_whole(path, b"new")
    assert everything_in(tmp_path) == {"file": b"new"}


def test_half_a_file_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    notes = []
    flush = os.fsync

    def look(descriptor: int) -> None:
        notes.append(path.read_bytes())
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    write_whole(path, b"new")
    assert notes == [b"old", b"new"]  # before the rename, and for the folder after it
    assert path.read_bytes() == b"new"


def test_every_new_folder_is_flushed_into_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert flushed == [tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_only_a_file_system_that_cannot_flush_folders_is_let_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(descriptor: int) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)


ENDS_WHILE_IT_WRITES = """
import sys, threading
from pathlib import Path
from mdgan.storage.whole_file import exit_between_files, whole_file, write_whole

writes, waits = threading.Event(), threading.Event()

def end():
    writes.wait()
    exit_between_files(7, float(sys.argv[2]))

threading.Thread(target=end, daemon=True).start()
with whole_file(Path(sys.argv[1]) / "file") as file:
    file.write(b"the first half, ")
    writes.set()
    waits.wait(None if sys.argv[2] == "0" else 0.5)
    file.write(b"and the second")
while True:
    write_whole(Path(sys.argv[1]) / "another", b"")
"""


@pytest.mark.parametrize(("patience", "there"), [("30", True), ("0", False)])
def test_a_process_ends_between_two_files(tmp_path: Path, patience: str, there: bool) -> None:
    command = [sys.executable, "-c", ENDS_WHILE_IT_WRITES, str(tmp_path), patience]
    assert subprocess.run(command, timeout=300, check=False).returncode == 7
    result = everything_in(tmp_path)
    assert (result.get("file") == b"the first half, and the second") is there
    if there:
        assert [name for name in result if name.endswith(".tmp")] == []


def test_a_secret_is_its_owners_alone_from_the_first_byte(tmp_path: Path) -> None:
    """Even if another file waits under the temporary name, for others to read."""
    path = tmp_path / "secret"
    planted = tmp_path / f".secret.{os.getpid()}.tmp"
    planted.touch(mode=0o666)
    held = planted.open("rb")
    with whole_file(path, 0o600) as file:
        file.write(b"key")
        file.flush()
        assert planted.stat().st_mode & 0o777 == 0o600
    with held:
        assert held.read() == b""
    assert path.stat().st_mode & 0o777 == 0o600


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
