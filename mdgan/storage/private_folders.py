"""Makes folders that other users of a machine cannot look into, and checks folders and sockets."""

import grp
import os
import pwd
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mdgan.errors import BadInput
from mdgan.settings.machine import cache_folder
from mdgan.system import unknown_user

_ROOT = 0
_MOST_OF_A_SOCKET = 76
"""Longest path in bytes that leaves room for a folder and a socket; systems allow about 100."""
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(Exception):
    """Another user may control a folder or a socket; the text is the reason, in one line."""


def make_private_folder(*, for_sockets: bool = False) -> "tempfile.TemporaryDirectory[str]":
    """Makes a folder in `$TMPDIR`, with mode 0700 and a random name."""
    temporary = check_temporary(for_sockets=for_sockets)
    return tempfile.TemporaryDirectory(prefix="mdgan-", dir=temporary, ignore_cleanup_errors=True)


def check_temporary(*, for_sockets: bool = False) -> Path:
    """Checks that no other user can replace a file in `$TMPDIR`; returns the path of `$TMPDIR`."""
    temporary = Path(tempfile.gettempdir())
    if for_sockets and len(os.fsencode(temporary.resolve())) > _MOST_OF_A_SOCKET:
        raise BadInput(f"TMPDIR {temporary}", "too long a path for sockets", "name a shorter one")
    try:
        check_above(temporary / "new")
    except NotPrivate as error:
        raise BadInput(f"TMPDIR {temporary}", f"{error}, or name another folder") from error
    return temporary.resolve()  # another user may have made a link that leads there


def check_above(path: Path) -> None:
    """Raises `NotPrivate` if another user, except root, can replace a path by something else."""
    # In a container root may have the number of unknown users.
    trusted = {_ROOT, os.geteuid(), unknown_user() or _ROOT}
    for folder in path.absolute().parent.resolve().joinpath("here").parents:
        status = folder.stat()
        if status.st_uid not in trusted:
            raise NotPrivate(f"{folder} is of another user, who may rename what is in it")
        by_group = status.st_mode & stat.S_IWGRP and not _is_of_one_user(status.st_gid)
        if not status.st_mode & stat.S_ISVTX and (status.st_mode & stat.S_IWOTH or by_group):
            raise NotPrivate(
                f"other users may rename what is in {folder}; `chmod +t {folder}` forbids that"
            )


def check_socket(place: str) -> None:
    """Checks that a socket, `unix:` and a path, is this user's, and that no other can replace it.

    Raises:
        NotPrivate: the socket may be another user's.
        OSError: the socket does not exist, or this user may not see it.
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
    """Makes a folder of mode 0700 in mdgan's cache; None if it cannot be made or is not private."""
    cache = cache_folder()
    if cache is None:
        return None
    folder = cache / name
    with suppress(OSError, NotPrivate):
        cache.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        status = folder.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if is_ours and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            check_above(folder)
            return cache.resolve() / name  # another user may have made a link that leads there
    return None


def _is_of_one_user(gid: int) -> bool:
    """Whether this user is a group's only member; never for root's group, which may have others."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    members = {*group.gr_mem, *(other.pw_name for other in pwd.getpwall() if other.pw_gid == gid)}
    return gid != _ROOT and members == {user.pw_name}
