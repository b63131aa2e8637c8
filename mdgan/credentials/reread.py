"""Reads files again when they change during a run, such as certificates that are renewed."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from mdgan.errors import BadInput

_log = logging.getLogger(__name__)

Content = TypeVar("Content")


class Reread(Generic[Content]):
    """Holds the content of some files, and reads all of them again when one has changed.

    Bad files are an error at the start. Later, `now` returns the last good content instead, and
    the log says so once. Several threads may use it.

    Args:
        read: reads and parses all the files; raises `BadInput`.
        told: words the log line for new content.
    """

    def __init__(
        self, paths: Sequence[Path], read: Callable[[], Content], told: Callable[[Content], str]
    ) -> None:
        self._paths, self._read, self._told = paths, read, told
        self._lock = threading.Lock()
        self._trouble = ""
        self._seen = self._versions()
        self._content = read()

    def now(self) -> Content:
        """The content of the files, read again if one has changed since."""
        with self._lock:
            if (seen := self._versions()) != self._seen:
                self._seen = seen
                try:
                    self._content = self._read()
                except BadInput as error:
                    if str(error) != self._trouble:
                        _log.warning("%s; until then the last good content is used", error.marked)
                    self._trouble = str(error)
                else:
                    self._trouble = ""
                    _log.info("%s", self._told(self._content))
            return self._content

    def _versions(self) -> list[tuple[int, ...] | None]:
        return [_version_of(path) for path in self._paths]


def _version_of(path: Path) -> tuple[int, ...] | None:
    """The file's time, size and number, which differ after each change; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
