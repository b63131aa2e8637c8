"""The ways in which a run ends badly without being a defect, and how trouble is told."""

import errno
import linecache
import logging
import re
import sysconfig
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from mdgan.spelling import Mention, spelled, without_controls

_log = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_OF_DISK = (*_FULL, *_TOO_MANY, errno.EIO, errno.EROFS, errno.ESTALE)
ITS_MACHINE_SAYS = "the line at its machine says why"
_FOLDERS = re.compile(r"[^\s'\"(=]*/(?=[^\s/])")


_NOT_THE_USERS = ("<frozen", str(Path(__file__).parent), sysconfig.get_path("stdlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
PROGRAMS: dict[str, str] = {}  # files that code is from, by what it calls them
FROM = re.compile(r"# from (.+), line (\d+), (\d+) lines$")
"""Says in a file that `mdgan.train` wrote from which lines of the program those below are."""


class BadInput(ValueError):
    """Something that the user gave cannot work: which, why, and the way out.

    The text is one line, `WHAT: WHY; WAY OUT`. The command line prints it and ends with status 2;
    a Python program sees keywords in it instead of flags. Line breaks in what the user gave become
    spaces.

    Args:
        what: what the user gave: a setting as `mdgan.spelling` mentions it, a file or a name; or
            the whole sentence, if it begins with none of these.
        why: it cannot work.
        way_out: what the user can do.

    Attributes:
        is_for_python: whether a Python program reads it.
        for_others: what other machines may read instead; empty if they may read the line.
    """

    def __init__(self, what: object, why: object = "", way_out: object = "") -> None:
        super().__init__(what, why, way_out)
        self.what, self.why, self.way_out = what, f"{why}", f"{way_out}"
        self.is_for_python = False
        self.for_others = ""

    @property
    def told_elsewhere(self) -> str:
        """What another machine is told: one short line, in which files have no folders."""
        told = self.for_others or getattr(self.__cause__, "for_others", "")
        return printable(told or _FOLDERS.sub("", spelled(self.marked)), 300)

    def keep_here(self) -> "BadInput":
        """Other machines learn what is refused, not why: the line may show what samples hold."""
        what = f"--{self.setting.replace('_', '-')}" if self.setting else "its data"
        self.for_others = self.for_others or f"{what}: {ITS_MACHINE_SAYS}"
        return self

    @property
    def setting(self) -> str:
        """The name of the setting that is refused; empty if it is none."""
        return self.what.setting if isinstance(self.what, Mention) else ""

    @property
    def value(self) -> str | None:
        """What the user gave for the setting; None if it is none, or the setting alone is named."""
        return self.what.value if isinstance(self.what, Mention) else None

    @property
    def marked(self) -> str:
        """The sentence with the marks of mentions, for another sentence."""
        text = f"{self.what}" + (self.why and f": {self.why}")
        return " ".join((text + (self.way_out and f"; {self.way_out}")).splitlines())

    def __str__(self) -> str:
        """The line, as its reader types what it names."""
        return without_controls(spelled(self.marked, in_python=self.is_for_python))

    def __repr__(self) -> str:
        """The same line; the parts of it would be in the words of the command line."""
        return f"BadInput({str(self)!r})"

    def _render_traceback_(self) -> list[str]:
        """In a notebook one line: what is wrong is in what was given, not in mdgan."""
        return [f"BadInput: {self}"]


def reason_of(error: BaseException) -> str:
    """What an error says, in one line of at most 300 characters; its type if it says nothing."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:  # without its number
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    return " ".join(text.split())[:300] or type(error).__name__


def cause_of(error: BaseException, *, of_user: bool = False) -> str:
    """An error and where it was raised, in one line, such as `KeyError: 'x' (own.py:7)`."""
    return f"{type(error).__name__}: {reason_of(error)}{where_raised(error, of_user=of_user)}"


def where_raised(error: BaseException, *, of_user: bool = True) -> str:
    """The last line of the user's own code that an error went through, such as ` (own.py:7)`.

    If it went through none, it is empty, or a line of mdgan unless `of_user`.
    """
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    own = [each for each in frames if _INSTALLED.isdisjoint(Path(each[0]).parts)]
    found = [each for each in own if not each[0].startswith(_NOT_THE_USERS)]
    if not (found := found or ([] if of_user else own or frames)):
        return ""
    return place_in_words(*found[-1])


def place_in_words(file: str, line: int) -> str:
    """A line of code as the user knows it, such as ` (own.py:7)`, also where it was copied."""
    for back, text in enumerate(reversed(linecache.getlines(file)[:line])):
        if (taken := FROM.match(text)) and back <= int(taken[3]):
            return f" ({taken[1]}:{int(taken[2]) + back - 1})"
    return f" ({PROGRAMS.get(file) or file_in_words(file)}:{line})"


def file_in_words(file: str) -> str:
    """The name of a file of code; the code of a notebook is in no file that its user knows."""
    return "notebook cell" if "ipykernel_" in file else Path(file).name


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Refuses what the user's own code raises in the block, which may be anything."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(what, cause_of(error, of_user=True)) from error


def one_line(error: object) -> str:
    """The first line of what an error or a stranger says, printable and of bounded length."""
    return printable(str(error).partition("\n")[0], 500)


def printable(text: str, most: int, *, besides: str = "") -> str:
    """Text of a stranger for one line of a log, at most so long; controls may move a terminal.

    Args:
        besides: characters that stay though they are not printable.
    """
    return "".join(c if c.isprintable() or c in besides else "?" for c in text[:most])


@cache
def warn_once(text: str) -> None:
    """Warns the user with a text, once in a process."""
    _log.warning("warning: %s", text)


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


def cannot_write(what: object, error: OSError) -> BadInput:
    """What (a file or folder, or its setting) cannot be written, why, and the way out."""
    is_full = error.errno in _FULL
    way_out = "free some space there, or name another place" if is_full else "name another place"
    if error.errno in _TOO_MANY:
        way_out = "let processes open more files (ulimit -n)"
    return BadInput(what, f"cannot write there ({error.strerror})", way_out)


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Refuses, as `cannot_write` says it, where the block cannot write."""
    try:
        yield
    except OSError as error:
        raise cannot_write(what, error) from error


class NotSaved(Exception):
    """The generator is not where it should be, for a reason of the disk; the text is one line."""


class Interrupted(Exception):
    """The process was asked to stop (Ctrl-C, SIGTERM, or a STOP message)."""


_warning_filters = threading.RLock()


@contextmanager
def without_warnings(category: type[Warning] = Warning) -> Iterator[None]:
    """Hides warnings in this block, in one thread at a time.

    Python keeps its filters once for all threads, so overlapping blocks would restore each other's.
    """
    with _warning_filters, warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield
