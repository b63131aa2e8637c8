"""Other users of the machine who may write where this user keeps sockets."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mdgan.errors import BadInput
from mdgan.launch import guests
from mdgan.storage.private_folders import make_private_folder
from mdgan.transport import plain_socket
from mdgan.transport.find import NoServerYet, check_ours
from mdgan.transport.frames import WireError
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    Training,
    check_refused,
    finish,
    kill_at_one_blow,
    run,
    start,
    wait_until,
)

NOBODY = 65534
OTHER_GROUP = 65533


@pytest.fixture(autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give files to another user")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for temporary files, which a group may write to; its sticky bit is set."""
    made = Path(tempfile.mkdtemp(prefix="shared-", dir="/tmp"))
    os.chown(made, 0, OTHER_GROUP)
    made.chmod(0o1775)
    yield made
    shutil.rmtree(made)


@claim(
    "private-folder",
    "mdgan refuses a $TMPDIR that is of another user, or to which others may write "
    "without the sticky bit.",
)
def test_a_folder_that_a_group_may_write_to_is_refused(tmp_path: Path, temporary: Path) -> None:
    """Another member of the group could rename the folder of a run's sockets."""
    flags = ["train", "--world-size", "2", "--iterations", "2", "--out", "run"]
    temporary.chmod(0o775)
    refused = run(*flags, cwd=tmp_path, TMPDIR=str(temporary))
    check_refused(refused, f"TMPDIR {temporary}: other users may rename what is in {temporary}")
    (temporary / "own").mkdir(mode=0o700)
    refused = run(*flags, cwd=tmp_path, TMPDIR=str(temporary / "own"))
    check_refused(refused, f"TMPDIR {temporary}/own", f"`chmod +t {temporary}`")
    temporary.chmod(0o755)
    os.chown(temporary, NOBODY, 0)
    refused = run(*flags, cwd=tmp_path, TMPDIR=str(temporary))
    check_refused(refused, f"{temporary} is of another user")
    assert not (tmp_path / "run").exists()


def test_the_group_of_one_user_is_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many systems make such a group for each user, and let it write to the user's folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    group, user = "mdgan.storage.private_folders.grp", "mdgan.storage.private_folders.pwd"
    alice = type("User", (), {"pw_name": "alice", "pw_gid": OTHER_GROUP})
    bob = type("User", (), {"pw_name": "bob", "pw_gid": OTHER_GROUP})
    os.chown(tmp_path, 0, OTHER_GROUP)
    tmp_path.chmod(0o775)
    of_alice = type("Group", (), {"gr_name": "alice", "gr_mem": ["alice"]})
    monkeypatch.setattr(f"{group}.getgrgid", lambda _: of_alice)
    monkeypatch.setattr(f"{user}.getpwuid", lambda _: alice)
    monkeypatch.setattr(f"{user}.getpwall", lambda: [alice])
    make_private_folder().cleanup()
    monkeypatch.setattr(f"{user}.getpwall", lambda: [alice, bob])
    with pytest.raises(BadInput, match="other users may rename"):
        make_private_folder()


@claim("private-folder", "mdgan refuses a $TMPDIR that is of another user")
def test_a_host_without_the_server_here_refuses_that_folder_too(
    tmp_path: Path, temporary: Path
) -> None:
    """Its port has a folder there."""
    temporary.chmod(0o775)
    flags = ["train", "--world-size", "2", "--ranks", "1", "--master-port", "1", "--insecure"]
    refused = run(*flags, cwd=tmp_path, TMPDIR=str(temporary))
    check_refused(refused, f"TMPDIR {temporary}", "chmod +t")


def test_a_path_that_is_too_long_for_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 20)))
    Path(tempfile.gettempdir()).mkdir()
    with pytest.raises(BadInput, match=r"TMPDIR .*: too long a path for sockets; name a shorter"):
        make_private_folder(for_sockets=True)
    make_private_folder().cleanup()


@pytest.mark.parametrize(
    "how", ["the folder", "the socket", "a folder that all may write to", "a link"]
)
@claim("private-folder", "mdgan join RUN cannot add workers to another user's run")
@claim(
    "private-folder", "mdgan join RUN cannot add workers to another user's run, not even as root."
)
def test_nobody_joins_the_server_of_another_user(temporary: Path, how: str) -> None:
    """The name is that which the run's own server had, and any user may read it."""
    run_json = temporary / "run" / "run.json"
    run_json.parent.mkdir()
    folder = temporary / "mdgan-known"
    folder.mkdir(mode=0o700)
    place = folder / "server"
    run_json.write_text(f'{{"socket": "unix:{place}"}}')
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(place))
        foreign.listen()
        if how == "the folder":
            os.chown(folder, NOBODY, NOBODY)
        elif how == "the socket":
            os.chown(place, NOBODY, NOBODY)
        elif how == "a link":
            (temporary / "link").symlink_to(folder)
            place = temporary / "link" / "server"
            run_json.write_text(f'{{"socket": "unix:{place}"}}')
        else:
            folder.chmod(0o777)
        with pytest.raises(BadInput, match="who alone may add workers to it"):
            guests.join({"connect_timeout": 5.0}, time.monotonic(), run_json.parent)
        with pytest.raises(NoServerYet):
            check_ours(f"unix:{place}")
        foreign.setblocking(False)
        with pytest.raises(BlockingIOError):
            foreign.accept()


@claim("private-folder", "mdgan join RUN cannot add workers to another user's run")
def test_a_host_leaves_the_server_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come to where the server told it to, and asks the system who listens there."""
    told: dict[str, Any] = {"name": "m1", "key": "0" * 32}
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(tmp_path / "m1"))
        foreign.listen()
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
        monkeypatch.setattr(plain_socket, "_ROOT", NOBODY)
        with pytest.raises(WireError, match="its socket for messages is not there"):
            plain_socket.knock(f"unix:{tmp_path}/server", told, 5.0)
        with foreign.accept()[0] as connection:
            assert connection.recv(1) == b""


@claim("private-folder", "mdgan join RUN cannot add workers to another user's run")
def test_a_host_does_not_return_to_a_name_that_another_user_has_taken(temporary: Path) -> None:
    """The server is gone with its folder; the host that joined it looks for it all the same."""
    flags = ["--set", "patience=2", "--threads", "1"]
    train = ["train", "--world-size", "2", "--iterations", "100000", "--log-interval", "5"]
    server = start([*MDGAN, *train, *flags, "--out", "run"], temporary, TMPDIR=str(temporary))
    running = Training(server, temporary / "run")
    wait_until(lambda: running.has_reached(5), "training")
    (folder,) = temporary.glob("mdgan-*")
    host = start([*MDGAN, "join", "run", *flags], temporary, TMPDIR=str(temporary))
    wait_until(lambda: "joined" in (running.folder / "metrics.jsonl").read_text(), "a host")
    taken = temporary / "foreign"
    taken.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(taken / "server"))
        foreign.listen()
        os.chown(taken, NOBODY, NOBODY)
        launcher = psutil.Process(server.pid)
        kill_at_one_blow([launcher, *launcher.children(recursive=True)])
        folder.rename(temporary / "away")
        taken.rename(folder)
        ended = finish(host)
        assert ended.status == 1, ended
        assert f"{folder}/server is of another user" in ended.errors
    finish(server)
