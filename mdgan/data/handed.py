"""Objects that a Python program hands to its own processes, over the pipe between them.

This is the only place that unpickles anything: only from a pipe that is this process's standard
input, and only as many bytes as the program that started the process has announced. Where processes
are no forks, Python unpickles what their parent gives them, from a pipe as well. mdgan unpickles
nothing from a file or a socket, and stores nothing pickled.
"""

import os
import pickle
import stat
import subprocess
import threading
from collections.abc import Mapping
from typing import IO, Any

from mdgan.errors import PROGRAMS, BadInput, cause_of

HANDED = "MDGAN_HANDED"
"""The environment variable that says how many bytes of objects the input begins with."""

DYNAMIC = "<dynamic-code>"  # cloudpickle's name for the file of all code

_KNOWN: dict[str, Any] = {}
_received: list[bytes] = []


def remember(token: str, objects: Mapping[str, Any]) -> None:
    """Keeps objects of this program for dataset files that this process loads."""
    _KNOWN[token] = dict(objects)


def remembered(token: str) -> dict[str, Any] | None:
    """The objects under a token, by name; None if this process has no such token."""
    _receive()
    return _KNOWN.get(token)


def handed(token: str, name: str) -> Any:
    """One of the objects that a program has handed over; the dataset file of its run calls this."""
    objects = remembered(token)
    if objects is None:
        raise BadInput(
            "its models were objects of a Python program that has ended",
            way_out="go on there with mdgan.Run.open(RUN, generator=…, discriminator=…)",
        )
    return objects[name]


def _receive() -> None:
    """Reads the objects that the starting program has written into this process's input."""
    if _received or not (size := os.environ.get(HANDED)):
        return
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        raise BadInput(
            f"{HANDED}={size}", "the input is no pipe of a program", "unset the variable"
        )
    take_over(read_input(int(size)))


def take_over(content: bytes) -> None:
    """Makes the objects of another process of this program known here."""
    if not content:
        return
    _received.append(content)
    try:
        _KNOWN.update(pickle.loads(content))
        PROGRAMS[DYNAMIC] = _KNOWN.pop(DYNAMIC, DYNAMIC)
    except Exception as error:  # the user's own objects may raise anything
        why = f"cannot be read by the run's processes ({cause_of(error, of_user=True)})"
        raise BadInput("models", why, "make them in a module of their own") from error


def read_input(size: int) -> bytes:
    """The next bytes of the input, fewer if it ends."""
    content = b""
    while len(content) < size and (piece := os.read(0, size - len(content))):
        content += piece
    return content


def content_to_pass_on() -> bytes:
    """The bytes of this process's objects, for processes that it starts; empty without objects."""
    _receive()
    return b"".join(_received)


def write_ahead(process: "subprocess.Popen[Any]", content: bytes, *, closes: bool) -> None:
    """Writes objects into the input of a process, which need not read them at once."""

    def write(stream: IO[Any]) -> None:
        try:
            raw = getattr(stream, "buffer", stream)
            raw.write(content)
            raw.flush()
            if closes:
                raw.close()
        except (OSError, ValueError):  # the process has ended without reading them
            pass

    assert process.stdin is not None
    threading.Thread(target=write, args=(process.stdin,), daemon=True).start()
