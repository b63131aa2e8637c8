"""Folders of this user alone, on a machine that has other users."""

import grp
import os
import pwd
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mdgan.errors import BadInput
from mdgan.settings.machine import cache_folder

_ROOT = 0
_MOST_OF_A_SOCKET = 76
"""Bytes of a path that leave room for a folder and a socket in it; systems allow some 100."""
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = ["0", "0", "4294967295"]


class NotPrivate(Exception):
    """Another user may be behind a folder or a socket; the text says why in one line."""


def make_private_folder(*, for_sockets: bool = False) -> "tempfile.TemporaryDirectory[str]":
    """A new folder with mode 0700 and a name that cannot be foretold, in `$TMPDIR`."""
    above = check_temporary(for_sockets=for_sockets)
    return tempfile.TemporaryDirectory(prefix="mdgan-", dir=above, ignore_cleanup_errors=True)


def check_temporary(*, for_sockets: bool = False) -> Path:
    """Checks that no other user can exchange a file in `$TMPDIR` for another; returns its path."""
    above = Path(tempfile.gettempdir())
    if for_sockets and len(os.fsencode(above.resolve())) > _MOST_OF_A_SOCKET:
        raise BadInput(f"TMPDIR {above}", "too long a path for sockets", "name a shorter one")
    try:
        check_above(above / "new")
    except NotPrivate as error:
        raise BadInput(f"TMPDIR {above}", f"{error}, or name another folder") from error
    return above.resolve()  # another user may have made a link that leads there


def check_above(path: Path) -> None:
    """Raises `NotPrivate` if another user, but root, can put something else in a path's place."""
    for above in path.absolute().parent.resolve().joinpath("here").parents:
        status = above.stat()
        if status.st_uid not in _trusted_users():
            raise NotPrivate(f"{above} is of another user, who may rename what is in it")
        by_group = status.st_mode & stat.S_IWGRP and not _is_of_one_user(status.st_gid)
        if not status.st_mode & stat.S_ISVTX and (status.st_mode & stat.S_IWOTH or by_group):
            raise NotPrivate(
                f"other users may rename what is in {above}; `chmod +t {above}` forbids that"
            )


def check_socket(place: str) -> None:
    """Checks that a socket, `unix:` and a path, is this user's, and that it will be as long.

    Raises:
        NotPrivate: it may be another user's.
        OSError: it is not there, or this user may not see it.
    """
    socket = Path(place.removeprefix("unix:"))
    folder, status = socket.parent.lstat(), socket.stat()
    if socket.parent != socket.parent.resolve():
        raise NotPrivate(f"a link leads to {socket}")
    if {folder.st_uid, status.st_uid} != {os.geteuid()}:
        raise NotPrivate(f"{socket} is of another user")
    if folder.st_mode & _BY_OTHERS:
        raise NotPrivate(f"other users may put sockets into {socket.parent}")
    check_above(socket.parent)


def private_cache(name: str) -> Path | None:
    """A folder of mode 0700 in mdgan's cache; None if it cannot be, or others may write there."""
    above = cache_folder()
    if above is None:
        return None
    folder = above / name
    with suppress(OSError, NotPrivate):
        above.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        status = folder.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if is_ours and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            check_above(folder)
            return above.resolve() / name  # another user may have made a link that leads there
    return None


def _is_of_one_user(gid: int) -> bool:
    """Whether a group has this user alone in it; on some systems root's has others."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    members = {*group.gr_mem, *(other.pw_name for other in pwd.getpwall() if other.pw_gid == gid)}
    return gid != _ROOT and members == {user.pw_name}


def _trusted_users() -> set[int]:
    """This user and root, who may be unknown by its number in a container."""
    trusted = {_ROOT, os.geteuid()}
    with suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
            trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return trusted
