"""Writes files that are complete as soon as they have their names, and private folders."""

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn

from mdgan.errors import writing
from mdgan.spelling import Mention, output
from mdgan.storage.foreign_file import open_regular

OWNER_ALONE = 0o600  # the mode of files with secrets or with weights learnt from samples
_OTHERS = 0o077

_changed = threading.Condition()
_num_open = 0
_is_ending = False


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a file of which no reader ever sees half; see `whole_file`."""
    with whole_file(path, mode) as file:
        file.write(data)


def write_output(path: Path, data: bytes, setting: Mention | None = None) -> None:
    """Writes a file that the user asked for by `setting` or `-o`, completely or not at all."""
    with writing(setting or output(path)):
        write_whole(path, data)


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yields a file to write piece by piece; the file gets its name when the block has ended.

    A process that is killed meanwhile leaves a file `.<name>.<process>.tmp` and nothing else.

    Args:
        mode: the file's mode from its first byte on, less the bits of the umask.

    Raises:
        OSError: the file cannot be written; an earlier file of its name is unchanged.
    """
    global _num_open
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _changed:
        _changed.wait_for(lambda: not _is_ending)  # see `exit_between_files`
        _num_open += 1
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process that had this number
        # "x": another user could read a file that the other user has put there.
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
        with _changed:
            _num_open -= 1
            _changed.notify_all()


def copy_private(source: Path, target: Path) -> None:
    """Copies a regular file; only this user can read the copy."""
    with open_regular(source) as original, whole_file(target, OWNER_ALONE) as copy:
        shutil.copyfileobj(original, copy)


def exit_between_files(status: int, timeout_seconds: float) -> NoReturn:
    """Ends the process by `os._exit`, but not while another thread writes a file.

    Args:
        timeout_seconds: how long to wait for such threads, as a disk may hang.
    """
    global _is_ending
    with _changed:
        _is_ending = True
        _changed.wait_for(lambda: not _num_open, timeout_seconds)
        os._exit(status)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it if need be; the folders survive a loss of power."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def make_private_folder(folder: Path, *, parents: bool = True) -> None:
    """Makes a folder that only this user can look into, or takes an existing one from others.

    Raises:
        OSError: the folder cannot be made, or is another user's and open to others.
    """
    if parents:
        make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        sync_folder(folder.parent)
    if folder.stat().st_mode & _OTHERS:
        try:
            folder.chmod(0o700)
        except PermissionError as error:
            why = "other users can look into it, and it is not this user's to close"
            raise PermissionError(error.errno, why, str(folder)) from error


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a loss of power, if the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
