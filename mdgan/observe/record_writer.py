"""Writes a run's records while training goes on, whatever becomes of the disk."""

import logging
from collections.abc import Callable
from pathlib import Path

from mdgan.errors import NotSaved, cannot_write

_log = logging.getLogger(__name__)


class RecordWriter:
    """Tries each write. One that fails costs a record, and a line in the log if it is the first.

    Args:
        may_write: called before each write; raises OSError if the folder is not there, and any
            other error if another process has taken over the run.
        at_begin: takes over, when training begins, a folder with records of a run that goes on;
            until then all writes wait. None for a new folder.
    """

    def __init__(
        self,
        run: Path,
        may_write: Callable[[], None] = lambda: None,
        at_begin: Callable[[], None] | None = None,
    ) -> None:
        self.trouble = ""  # one line on the last write that failed; empty if none has
        self.is_strict = False
        self._run = run
        self._may_write = may_write
        self._at_begin = at_begin
        self._waiting: list[Callable[[], object]] = []
        self._is_known = False

    def __call__(self, write: Callable[[], object]) -> bool:
        """Writes now, or when training begins: whether it worked, or `NotSaved` if `is_strict`."""
        if self._at_begin is not None:
            self._waiting.append(write)
            return True
        try:
            self._may_write()
            write()
        except OSError as error:
            self.trouble = str(cannot_write(error.filename or self._run, error))
            if self.is_strict:
                raise NotSaved(self.trouble) from error
            if not self._is_known:
                name = error.filename or self._run
                _log.info("warning: cannot write %s: %s; training goes on", name, error.strerror)
            self._is_known = True
            return False
        return True

    def begin(self) -> None:
        """Training begins: takes over the folder, and makes up for the writes that waited."""
        if self._at_begin is None:
            return
        self._may_write()
        self._at_begin()
        self._at_begin = None
        for write in self._waiting:
            self(write)
        self._waiting.clear()

    def recovered(self) -> None:
        """What is largest could be written again; says so, and tells of the next trouble too."""
        if self._is_known:
            _log.info("%s can be written again", self._run)
        self._is_known = False
