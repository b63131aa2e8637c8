"""Another user of the machine cannot take part in a run whose ranks are all on it."""

import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mdgan.errors import BadInput
from mdgan.launch import guests
from mdgan.storage import private_folders
from tests.claims.registry import claim
from tests.processes import MDGAN, Training, finish, start, wait_until

NOBODY = 65534


def as_nobody(act: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What another user finds, in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        results: dict[str, str] = json.load(told)
    os.waitpid(child, 0)
    return results


def intrude(run: Path, folder: Path) -> dict[str, str]:
    def tries(act: Callable[[], object]) -> str:
        try:
            act()
        except (OSError, BadInput) as error:
            return str(error) if isinstance(error, BadInput) else type(error).__name__
        return "done"

    def connect(name: str) -> None:
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(folder / name))

    return {
        "read the run": tries((run / "run.json").read_text),
        "list": tries(lambda: list(folder.iterdir())),
        "make": tries((folder / "own").touch),
        "rename": tries(lambda: folder.rename(f"{folder}-away")),
        **{name: tries(partial(connect, name)) for name in ("server", "1", "2")},
        "join": tries(lambda: guests.join({"connect_timeout": 3.0}, time.monotonic(), run)),
    }


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter, with one for temporary files in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    made = Path(tempfile.mkdtemp(prefix="public-", dir="/tmp"))
    made.chmod(0o755)
    (made / "tmp").mkdir()
    (made / "tmp").chmod(0o1777)
    yield made
    shutil.rmtree(made)


@claim(
    "one-machine",
    "Where all ranks are on one machine, no port is open, and no other user of the "
    "machine but root can take part",
)
def test_another_user_cannot_take_part(public: Path) -> None:
    flags = ["train", "--world-size", "3", "--iterations", "100000", "--log-interval", "5"]
    command = [*MDGAN, *flags, "--threads", "1", "--out", "run"]
    process = start(command, public, TMPDIR=str(public / "tmp"))
    running = Training(process, public / "run")
    wait_until(lambda: running.has_reached(5), "training")
    (folder,) = (public / "tmp").glob("mdgan-*")
    status = folder.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.geteuid())
    assert {path.name for path in folder.iterdir()} == {"server", "1", "2"}
    told = as_nobody(lambda: intrude(running.folder, folder))
    assert told.pop("read the run") == "done", "it may read what the run's user lets it read"
    assert "is of another user, who alone may add workers" in told.pop("join")
    assert set(told.values()) == {"PermissionError"}, told
    running.process.terminate()
    result = finish(running.process)
    assert "joined" not in result.errors
    assert not list((public / "tmp").glob("mdgan-*"))


def test_a_folder_that_was_there_before_is_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that another user has made, with a name that was guessed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = iter(["guessed", "other"])
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: names)
    (tmp_path / "mdgan-guessed").mkdir(mode=0o777)
    before = os.umask(0)
    try:
        with private_folders.make_private_folder() as made:
            assert Path(made) == tmp_path / "mdgan-other"
            assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_place_where_others_may_rename_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match="other users may rename what is in"):
        private_folders.make_private_folder()
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o1777)
    private_folders.make_private_folder().cleanup()
