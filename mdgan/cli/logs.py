"""Shows on the terminal what mdgan logs; a program that imports mdgan sees nothing by itself."""

import contextlib
import logging
import sys


class TerminalHandler(logging.Handler):
    """Writes a line for each record to the standard error.

    INFO is written as it is; what is worse begins with `mdgan: `. The sender of a record may say
    with `extra={"shown": …}` how it is shown: "live" is overwritten by the next line on a
    terminal, and "result" goes to the standard output.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live_width = 0

    @property
    def redraws(self) -> bool:
        """Whether live lines are overwritten, so that they may come many times a second."""
        return sys.stderr.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record at once; a stream that its reader has closed takes no more."""
        line = "mdgan: " * (record.levelno >= logging.WARNING) + self.format(record)
        shown = getattr(record, "shown", "note")
        with contextlib.suppress(OSError):
            if shown == "live" and self.redraws:
                print("\r" + line.ljust(self._live_width), end="", file=sys.stderr, flush=True)
                self._live_width = len(line)
                return
            if self._live_width:
                print("\r" + " " * self._live_width, end="\r", file=sys.stderr, flush=True)
                self._live_width = 0
            print(line, file=sys.stdout if shown == "result" else sys.stderr, flush=True)


_HANDLER = TerminalHandler()


def show_logs() -> None:
    """Shows from now on what mdgan logs, here and in processes that are forked from this one."""
    logger = logging.getLogger("mdgan")
    logger.setLevel(logging.INFO)
    logger.addHandler(_HANDLER)  # which does nothing the second time
