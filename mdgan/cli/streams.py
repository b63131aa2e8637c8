"""Standard streams that take every line, whatever this process was started with."""

import io
import os
import sys


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
