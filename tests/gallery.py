"""Makes finished runs that tests only read, once for all processes of a test session."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def common_folder(temporary: pytest.TempPathFactory) -> Path:
    """The folder that all test processes of a session share."""
    base = temporary.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


class Gallery:
    """Hangs runs, each in its own folder; a test that writes takes a copy.

    Args:
        folder: where they lie, for all test processes of a session.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def show(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder that `make` fills when the first test process asks for it.

        It is filled in its place, since runs know the paths of their data. What a process has
        left behind that was killed on the way, or whose run failed, is made anew.
        """
        shown, whole = self._folder / name, self._folder / f"{name}.whole"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(shown, ignore_errors=True)
                shown.mkdir()
                make(shown)
                whole.touch()
        return shown
