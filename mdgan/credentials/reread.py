"""What files say that may change while a run goes on, such as certificates that are renewed."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from mdgan.errors import BadInput

_log = logging.getLogger(__name__)

Content = TypeVar("Content")


class Reread(Generic[Content]):
    """What some files say together; they are read again when one of them changes.

    Files that make no sense are an error at the start. Later the last good content is kept, and
    the log says so once. Safe for use from several threads.

    Args:
        read: raises `BadInput`.
        told: what the log says of new content.
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
        """What they say."""
        with self._lock:
            if (seen := self._versions()) != self._seen:
                self._seen = seen
                try:
                    self._content = self._read()
                except BadInput as error:
                    if str(error) != self._trouble:
                        _log.warning("%s; until then the last good one holds", error.marked)
                    self._trouble = str(error)
                else:
                    self._trouble = ""
                    _log.info("%s", self._told(self._content))
            return self._content

    def _versions(self) -> list[tuple[int, ...] | None]:
        return [_version_of(path) for path in self._paths]


def _version_of(path: Path) -> tuple[int, ...] | None:
    """Differs after each change of the file; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
