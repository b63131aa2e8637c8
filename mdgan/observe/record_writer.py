"""Writes a run's records so that training goes on if the disk fails or is full."""

import logging
from collections.abc import Callable
from pathlib import Path

from mdgan.errors import NotSaved, cannot_write

_log = logging.getLogger(__name__)


class RecordWriter:
    """Tries each write. A write that fails loses its record; the first one is logged.

    Args:
        may_write: called before each write; raises OSError if the folder is missing, and any other
            error if another process has taken over the run.
        at_begin: prepares the folder of a resumed run when training begins; until then all writes
            wait. None for a new folder.
    """

    def __init__(
        self,
        run: Path,
        may_write: Callable[[], None] = lambda: None,
        at_begin: Callable[[], None] | None = None,
    ) -> None:
        self.trouble = ""  # one line about the last write that failed; empty if none has
        self.is_strict = False  # whether a failed write raises `NotSaved`
        self._run = run
        self._may_write = may_write
        self._at_begin = at_begin
        self._waiting: list[Callable[[], object]] = []
        self._is_logged = False

    def __call__(self, write: Callable[[], object]) -> bool:
        """Calls `write`, now or when training begins; False if it failed."""
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
            if not self._is_logged:
                name = error.filename or self._run
                _log.info("warning: cannot write %s: %s; training goes on", name, error.strerror)
            self._is_logged = True
            return False
        return True

    def begin(self) -> None:
        """Prepares the folder when training begins, and does the writes that waited."""
        if self._at_begin is None:
            return
        self._may_write()
        self._at_begin()
        self._at_begin = None
        for write in self._waiting:
            self(write)
        self._waiting.clear()

    def recovered(self) -> None:
        """Logs that the disk takes large files again; the next failure will be logged, too."""
        if self._is_logged:
            _log.info("%s can be written again", self._run)
        self._is_logged = False
