"""Runs a command of mdgan for a Python program, shows what it says, and passes Ctrl-C on."""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mdgan.data.handed import HANDED, write_ahead
from mdgan.errors import BadInput
from mdgan.interface.wording import in_python
from mdgan.launch.minder import ENDS_WITH_INPUT
from mdgan.launch.private_folders import make_private_folder
from mdgan.launch.resolve import combined, known_settings
from mdgan.settings.config_file import read_config_file
from mdgan.settings.declare import suggest
from mdgan.settings.retired import answer

_BAD_INPUT = 2
_LOOK_SECONDS = 0.2
_MARK = "mdgan: "  # begins the lines that warn or refuse


class RunFailed(RuntimeError):
    """A run ended before it was finished, though nothing was wrong with what the user gave."""

    def _render_traceback_(self) -> list[str]:
        """In a notebook one line: what is wrong is not in the code of its cell."""
        return [f"RunFailed: {self}"]


@dataclass
class Audience:
    """Who sees what a command says, and who looks on meanwhile."""

    quiet: bool = False  # nothing is shown
    # Shows a line; progress bars have one of their own.
    write: Callable[[str], object] = lambda text: sys.stdout.write(text)
    # Called every moment while the command runs, and once after it; True stops it.
    look: Callable[[], bool] = lambda: False
    own: str = ""  # with what `Run.open` is called to go on; see `mdgan.interface.wording`


def command(*arguments: str, shown: Audience, handed: bytes = b"") -> None:
    """Runs `mdgan` with arguments to its end; Ctrl-C stops it as on the command line.

    Args:
        handed: models for `mdgan.data.handed`.

    Raises:
        BadInput: it says so.
        RunFailed: it failed.
        KeyboardInterrupt: the user stopped it; it has saved the run.
        Exception: what `look` has raised; the run is saved.
    """
    warnings: deque[str] = deque(maxlen=1)
    stopped: BaseException | None = None
    is_over = asked = False
    with _started(arguments, handed) as process:
        lines = _lines_of(process)
        while not is_over:
            try:
                if stopped is None and shown.look() and not asked:
                    asked = True
                    process.terminate()
                for line in _new_lines(lines):
                    if line is None:
                        is_over = True
                        break
                    said = in_python(line, shown.own)
                    if _MARK in said:
                        warnings.append(said.partition(_MARK)[2].strip())
                    if not shown.quiet:
                        shown.write(said)
                        sys.stdout.flush()
            except (KeyboardInterrupt, Exception) as error:
                stopped = error
                process.terminate()  # it saves the run; asked a second time, it ends at once
        status = process.wait()
    if stopped is not None:
        raise stopped
    shown.look()
    said = "".join(warnings)
    if status == _BAD_INPUT:
        raise BadInput(said)
    if status and not asked:
        raise RunFailed(f"ended with status {status}{f': {said}' if said else ''}")


def say(*lines: str) -> None:
    """Shows lines to the user."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _lines_of(process: "subprocess.Popen[str]") -> "queue.SimpleQueue[str | None]":
    """What a process prints, line by line; None is its end."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    output = process.stdout
    assert output is not None

    def read() -> None:
        with contextlib.suppress(ValueError, OSError):  # closed, as the process was killed
            for line in output:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _new_lines(lines: "queue.SimpleQueue[str | None]") -> Iterator[str | None]:
    """The lines that have come; waits a moment for the first."""
    with contextlib.suppress(queue.Empty):
        yield lines.get(timeout=_LOOK_SECONDS)
        while True:
            yield lines.get_nowait()


@contextlib.contextmanager
def _started(arguments: tuple[str, ...], handed: bytes) -> Iterator["subprocess.Popen[str]"]:
    """A process with a session of its own; neither it nor its children outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mdgan", *arguments],
        stdin=subprocess.PIPE,  # closed when this process ends, and then so does mdgan
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, ENDS_WITH_INPUT: "1", HANDED: str(len(handed) or "")},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if handed:
        write_ahead(process, handed, closes=False)
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def plain(
    settings: Mapping[str, Any],
    config: "str | os.PathLike[str] | None" = None,
    *,
    paper_scale: bool = False,
) -> dict[str, Any]:
    """Settings by name as `--config` has them, from paths, lists and NumPy's numbers, too.

    Those of a file stand below them, with its `faults`.
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
    path = None if config is None else Path(config)
    file, faults = read_config_file(path, known, paper_scale=paper_scale)
    return {**combined([found, file]), **({"faults": faults} if faults else {})}


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
    for number in itertools.count(1):
        path = Path(began if number == 1 else f"{began}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()
