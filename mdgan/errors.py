"""The ways in which a run ends badly without being a defect, and how trouble is told."""

import errno
import threading
import traceback
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_OF_DISK = (*_FULL, *_TOO_MANY, errno.EIO, errno.EROFS, errno.ESTALE)


class BadInput(ValueError):
    """Something that the user gave cannot work.

    The text is one line that names the value and the way out. The command line prints it and ends
    with status 2. Line breaks in what the user gave become spaces.
    """

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.splitlines()))

    def _render_traceback_(self) -> list[str]:
        """In a notebook one line: what is wrong is in what was given, not in mdgan."""
        return [f"BadInput: {self}"]


def reason_of(error: BaseException) -> str:
    """What an error says, in one line of at most 300 characters; its type if it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def cause_of(error: BaseException) -> str:
    """An error and where it was raised, in one line, such as `KeyError: 'x' (own.py:7)`."""
    frames = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    own = [each for each in frames if "site-packages" not in each[0].parts] or frames
    where = f" ({own[-1][0].name}:{own[-1][1]})" if own else ""
    return f"{type(error).__name__}: {reason_of(error)}{where}"


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Refuses what the user's own code raises in the block, which may be anything."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{what}: {type(error).__name__}: {reason_of(error)}") from error


def one_line(error: object) -> str:
    """The first line of what an error or a stranger says, printable and of bounded length."""
    return printable(str(error).partition("\n")[0], 500)


def printable(text: str, most: int) -> str:
    """Text of a stranger for one line of a log, at most so long; controls may move a terminal."""
    kept = text[:most]
    return kept if kept.isprintable() else "".join(c if c.isprintable() else "?" for c in kept)


class Folded:
    """Tells what happens again and again less and less often: the 1st, 2nd, 4th, 8th, … time.

    What strangers say fills neither a log nor memory: few texts of a source are counted apart, and
    few sources; all further ones count as one. Any thread may ask.
    """

    def __init__(self, most_sources: int = 1000, most_texts: int = 16) -> None:
        self._most_sources, self._most_texts = most_sources, most_texts
        self._times: dict[Hashable, Counter[int]] = {}
        self._lock = threading.Lock()

    def line(self, text: str, source: Hashable) -> str:
        """The line to tell now of something that a source has done; empty: nothing."""
        with self._lock:
            known = source in self._times or len(self._times) < self._most_sources
            source = source if known else None
            of_source = self._times.setdefault(source, Counter())
            what = hash(text)
            what = what if what in of_source or len(of_source) < self._most_texts else 0
            of_source[what] += 1
            times = of_source[what]
        if times.bit_count() > 1:
            return ""
        return text if times == 1 else f"{text} ({times:,} times so far)"


def is_of_disk(error: OSError) -> bool:
    """Whether an error is no defect: a full, broken or read-only disk, or too many open files."""
    return error.errno in _OF_DISK


def cannot_write(what: object, error: OSError) -> str:
    """One line: what (a file or folder, with its flag) cannot be written, why, and the way out."""
    is_full = error.errno in _FULL
    way_out = "free some space there, or name another place" if is_full else "name another place"
    if error.errno in _TOO_MANY:
        way_out = "let processes open more files (ulimit -n)"
    return f"{what}: cannot write there ({error.strerror}); {way_out}"


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Refuses, as `cannot_write` says it, where the block cannot write."""
    try:
        yield
    except OSError as error:
        raise BadInput(cannot_write(what, error)) from error


class NotSaved(Exception):
    """The generator is not where it should be, for a reason of the disk; the text is one line."""


class Interrupted(Exception):
    """The process was asked to stop (Ctrl-C, SIGTERM, or a STOP message)."""
