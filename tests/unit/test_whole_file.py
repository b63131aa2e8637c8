import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mdgan.whole_file import write_whole


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def fail_with_full_disk(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"a long first version")
    write_whole(path, b"second")
    assert everything_in(tmp_path) == {"file": b"second"}


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


def test_a_full_disk_leaves_no_half_of_a_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", fail_with_full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", b"new")
    assert everything_in(tmp_path) == {}


def test_nobody_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    seen = []
    flush = os.fsync

    def look(descriptor: int) -> None:
        seen.append(path.read_bytes())
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    write_whole(path, b"new")
    assert seen == [b"old"]
    assert path.read_bytes() == b"new"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nothing" / "file", b"new")
