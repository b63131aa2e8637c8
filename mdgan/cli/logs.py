"""Shows what mdgan logs on the terminal, for commands; programs that import mdgan log nothing."""

import contextlib
import io
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.observe.progress import LOG_SECONDS, fitting
from mdgan.settings.machine import path_of
from mdgan.spelling import flag, spelled, without_controls

_FALLBACK_COLUMNS = 80


class _Formatter(logging.Formatter):
    """Removes characters that control a terminal, which names of foreign files may contain."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats one record without such characters."""
        return without_controls(spelled(super().format(record)))


class TerminalHandler(logging.Handler):
    """Writes a line for each record to the standard error.

    Warnings and errors begin with `mdgan: `. The sender of a record chooses with
    `extra={"shown": …}` how the handler shows it. On a terminal the next line overwrites "live",
    "slow" and "doing". "doing" is for terminals alone. "result" goes to the standard output.
    "refusal" never has the time before it.

    Attributes:
        stamps: whether lines begin with the time where the standard error is no terminal.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Formatter())
        self.stamps = False

    def __reduce__(self) -> tuple[Any, ...]:
        return TerminalHandler, (), {"stamps": self.stamps}

    @property
    def redraws(self) -> bool:
        """Whether the handler overwrites live lines, so that they may come many times a second."""
        return sys.stderr.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record at once, and ignores a stream that its reader has closed."""
        line = "mdgan: " * (record.levelno >= logging.WARNING) + self.format(record)
        shown = getattr(record, "shown", "note")
        with contextlib.suppress(OSError):
            if self.redraws:
                # Another process of the run may have left its live line on the screen.
                room = _columns() - 1
                print("\r" + " " * room, end="\r", file=sys.stderr, flush=True)
                if shown in ("live", "doing", "slow"):
                    line = fitting(getattr(record, "pieces", [(0, line)]), room)
                    print(line, end="", file=sys.stderr, flush=True)
                    return
            elif shown == "doing":
                return
            elif self.stamps and shown not in ("result", "refusal"):
                line = time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(record.created)) + line
            # In one piece, since lines of several processes could run together otherwise.
            stream = sys.stdout if shown == "result" else sys.stderr
            print(f"{line}\n", end="", file=stream, flush=True)


class _LogFile(logging.FileHandler):
    """The file of --log-file, to which several processes add lines. Ignores a full disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        self._last_live = -float("inf")

    def __reduce__(self) -> tuple[Any, ...]:
        return _LogFile, (Path(self.baseFilename),)

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a record, but a live one only if the last is some seconds old."""
        shown = getattr(record, "shown", "note")
        if shown == "doing":
            return
        if shown == "live":
            now = time.monotonic()  # the time of records may jump backwards
            if now - self._last_live < LOG_SECONDS:
                return
            self._last_live = now
        super().emit(record)

    def close(self) -> None:
        """Closes the file, even if its last line does not fit on the disk."""
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignores a line that cannot be written."""


_HANDLER = TerminalHandler()


def show_logs() -> None:
    """Starts to show what mdgan logs, also in forks of this process; removes a log file."""
    logger = logging.getLogger("mdgan")
    logger.setLevel(logging.INFO)
    _HANDLER.stamps = False
    others = (_LogFile, logging.NullHandler)  # the latter words lines for Python
    for handler in [each for each in logger.handlers if isinstance(each, others)]:
        logger.removeHandler(handler)
        handler.close()
    logger.addHandler(_HANDLER)  # a second call has no effect


def begin_long_command(log_file: str | None) -> None:
    """Adds the time to lines where no terminal shows them, and copies lines to a file, if any."""
    _HANDLER.stamps = True
    if log_file is None:
        return
    try:
        handler = _LogFile(path_of(log_file))
    except OSError as error:
        why = f"cannot be written ({error.strerror})"
        raise BadInput(flag("log_file", log_file), why, "name another file") from error
    logging.getLogger("mdgan").addHandler(handler)


def say_loading() -> None:
    """Logs that PyTorch is being loaded; not in a file if that takes no time."""
    shown = "doing" if "torch" in sys.modules else "slow"
    logging.getLogger(__name__).info("loading PyTorch …", extra={"shown": shown})


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _FALLBACK_COLUMNS
    except (OSError, ValueError):
        return _FALLBACK_COLUMNS


def prepare_streams() -> None:
    """Opens closed standard streams to nowhere, and lets the others take any character.

    Otherwise the first file that mdgan opens would get the number of a closed stream, and then what
    commands print. Characters that the encoding of a stream lacks become question marks.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
