"""Runs a command of mdgan for a Python program, shows what it says, and passes Ctrl-C on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.launch.minder import ENDS_WITH_INPUT
from mdgan.launch.private_folders import make_private_folder
from mdgan.launch.resolve import known_settings
from mdgan.settings.declare import suggest
from mdgan.settings.retired import answer

_BAD_INPUT = 2
_MARK = "mdgan: "
"""Begins the lines that warn or refuse."""


class RunFailed(RuntimeError):
    """A run ended before it was finished, though nothing was wrong with what the user gave."""


def command(*arguments: str, quiet: bool) -> None:
    """Runs `mdgan` with arguments to its end; Ctrl-C stops it as on the command line.

    Raises:
        BadInput: it says so.
        RunFailed: it failed.
        KeyboardInterrupt: the user stopped it; it has saved the run.
    """
    warnings: deque[str] = deque(maxlen=1)
    interrupted = False
    with _started(arguments) as process:
        assert process.stdout is not None
        while True:
            try:
                for line in process.stdout:
                    if _MARK in line:
                        warnings.append(line.partition(_MARK)[2].strip())
                    if not quiet:
                        sys.stdout.write(line)
                        sys.stdout.flush()
                status = process.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
                process.terminate()  # it saves the run; asked a second time, it ends at once
    if interrupted:
        raise KeyboardInterrupt
    said = "".join(warnings)
    if status == _BAD_INPUT:
        raise BadInput(said)
    if status:
        raise RunFailed(f"ended with status {status}{f': {said}' if said else ''}")


@contextlib.contextmanager
def _started(arguments: tuple[str, ...]) -> Iterator["subprocess.Popen[str]"]:
    """A process with a session of its own; neither it nor its children outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mdgan", *arguments],
        stdin=subprocess.PIPE,  # closed when this process ends, and then so does mdgan
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, ENDS_WITH_INPUT: "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a file for `--config` holds them.

    Args:
        settings: by the names of their flags; paths, NumPy's numbers and lists count as what they
            stand for.
    """
    found: dict[str, Any] = {}
    known = known_settings()
    for name, value in settings.items():
        if name not in known:
            raise BadInput(answer(name, value) or f"{name}: is no setting{suggest(name, known)}")
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif not isinstance(value, str | bytes) and hasattr(value, "item"):
            value = value.item()
        if not isinstance(value, str | bool | int | float | None):
            raise BadInput(f"{name}: {type(value).__name__} is no value of a setting")
        found[name] = value
    return found


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes with the block."""
    with make_private_folder() as made:
        yield Path(made)


def write_settings(path: Path, settings: Mapping[str, Any]) -> str:
    """Writes a file for `--config`, and returns its path."""
    path.write_text(json.dumps(settings), encoding="utf-8")
    return str(path)


@contextlib.contextmanager
def output_folder(given: str | None, name: str) -> Iterator[Path]:
    """The folder given, or a new `runs/NAME-TIME`, which is removed if it stays empty."""
    if given is not None:
        yield Path(given)
        return
    began = f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}"
    number, path = 1, Path(began)
    while True:
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
            path = Path(f"{began}-{number}")
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()
