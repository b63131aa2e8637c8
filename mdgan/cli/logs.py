"""Shows on the terminal what mdgan logs; a program that imports mdgan sees nothing by itself."""

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
    """Names of foreign files may hold characters that move a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """One record without such characters."""
        return without_controls(spelled(super().format(record)))


class TerminalHandler(logging.Handler):
    """Writes a line for each record to the standard error.

    INFO is written as it is; what is worse begins with `mdgan: `. The sender of a record may say
    with `extra={"shown": …}` how it is shown: "live" and "slow" are overwritten by the next line on
    a terminal, "doing" too and is shown nowhere else, "result" goes to the standard output, and
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
        """Whether live lines are overwritten, so that they may come many times a second."""
        return sys.stderr.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record at once; a stream that its reader has closed takes no more."""
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
            # In one piece: without buffers, lines of several processes would else run together.
            stream = sys.stdout if shown == "result" else sys.stderr
            print(f"{line}\n", end="", file=stream, flush=True)


class _LogFile(logging.FileHandler):
    """The file of --log-file; several processes add lines to it. A full disk stops nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        self._last_live = -float("inf")

    def __reduce__(self) -> tuple[Any, ...]:
        return _LogFile, (Path(self.baseFilename),)

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a record; of the live ones, those that a log without terminal would have."""
        shown = getattr(record, "shown", "note")
        if shown == "doing":
            return
        if shown == "live":
            now = time.monotonic()  # the clock of records may be set back
            if now - self._last_live < LOG_SECONDS:
                return
            self._last_live = now
        super().emit(record)

    def close(self) -> None:
        """Closes the file, though its last line may not fit on the disk."""
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Passes over a line that cannot be written."""


_HANDLER = TerminalHandler()


def show_logs() -> None:
    """Shows from now on what mdgan logs, here and in processes that are forked from this one."""
    logger = logging.getLogger("mdgan")
    logger.setLevel(logging.INFO)
    _HANDLER.stamps = False
    others = (_LogFile, logging.NullHandler)  # the latter lets a program hear words of Python
    for handler in [each for each in logger.handlers if isinstance(each, others)]:
        logger.removeHandler(handler)
        handler.close()
    logger.addHandler(_HANDLER)  # which does nothing the second time


def begin_long_command(log_file: str | None) -> None:
    """Lines get the time where the standard error is no terminal, and also go to a file."""
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
    """Says that PyTorch is loaded, in logs, too, if that takes seconds."""
    shown = "doing" if "torch" in sys.modules else "slow"
    logging.getLogger(__name__).info("loading PyTorch …", extra={"shown": shown})


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _FALLBACK_COLUMNS
    except (OSError, ValueError):
        return _FALLBACK_COLUMNS


def prepare_streams() -> None:
    """Opens closed streams to nowhere, and lets the others take any character.

    Otherwise the first file that is opened would take the place of a closed stream, and get what is
    printed. What the encoding of a stream lacks is printed as a question mark.
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
