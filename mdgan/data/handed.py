"""Objects that a Python program hands to its own processes, over the pipe between them.

This is the one place where something pickled is read: only from a pipe that is this process's
standard input, and only as many bytes as the program that started it has said. Nothing pickled is
read from a file or a socket, and nothing is stored.
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
"""The variable in which a program says with how many bytes of objects the input begins."""

DYNAMIC = "<dynamic-code>"  # what cloudpickle calls the file of all code

_KNOWN: dict[str, Any] = {}
_received: list[bytes] = []


def remember(token: str, objects: Mapping[str, Any]) -> None:
    """Keeps objects of this program for dataset files that it reads itself."""
    _KNOWN[token] = dict(objects)


def remembered(token: str) -> dict[str, Any] | None:
    """Objects by their names; None if this program has none of that token."""
    _receive()
    return _KNOWN.get(token)


def handed(token: str, name: str) -> Any:
    """One of the objects that a program has handed over, as the dataset file of its run asks."""
    found = remembered(token)
    if found is None:
        raise BadInput(
            "its models were objects of a Python program that has ended",
            way_out="go on there with mdgan.Run.open(RUN, generator=…, discriminator=…)",
        )
    return found[name]


def _receive() -> None:
    """Reads what the program that started this process has written into its input."""
    if _received or not (size := os.environ.get(HANDED)):
        return
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        raise BadInput(
            f"{HANDED}={size}", "the input is no pipe of a program", "unset the variable"
        )
    content = read_input(int(size))
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
    """What this process was handed, for processes that it starts; empty if nothing was."""
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
        except (OSError, ValueError):  # it has ended without reading them
            pass

    assert process.stdin is not None
    threading.Thread(target=write, args=(process.stdin,), daemon=True).start()
