"""The child process of a Python program: trains as the command line does, and sends events back.

`python -m mdgan.cli.serve PIPE REQUEST_BYTES MODEL_BYTES` sends events into the pipe with that
descriptor. It reads a request of REQUEST_BYTES and pickled models of MODEL_BYTES from its standard
input, and ends when that input is closed. Only the user's own code prints to its standard output.
"""

import contextlib
import logging
import os
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from msgspec import msgpack

from mdgan import cli
from mdgan.cli.logs import prepare_streams
from mdgan.cli.options import prepare_environment, read_layers
from mdgan.cli.train import train_given
from mdgan.data.handed import HANDED, read_input
from mdgan.errors import BadInput
from mdgan.interface import messages
from mdgan.interface.messages import ChildRequest, LineLogged
from mdgan.launch.faults import FAULTS
from mdgan.launch.forks import end_process
from mdgan.launch.given import Given
from mdgan.launch.minder import ENDS_WITH_INPUT
from mdgan.settings.config_file import ConfigFile
from mdgan.spelling import mark_arguments, spelled, without_controls


class EventSender(logging.Handler):
    """Sends what mdgan logs in this process and its forks to the program.

    Args:
        pipe: gets the events.
        open_arguments: what `mdgan.Run.open` needs in another program; see `spelled`.
    """

    def __init__(self, pipe: Connection, open_arguments: str) -> None:
        super().__init__()
        self._pipe = pipe
        self._open_arguments = open_arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return EventSender, (self._pipe, self._open_arguments)

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record, unless it is for terminals alone or the program has ended."""
        event = self._event_of(record)
        if event is not None:
            with contextlib.suppress(OSError):
                messages.send_event(self._pipe.fileno(), event)

    def _event_of(self, record: logging.LogRecord) -> messages.ChildEvent | None:
        shown = getattr(record, "shown", "note")
        if record.levelno < logging.INFO or shown in ("doing", "slow"):
            return getattr(record, "event", None)
        args = record.args if isinstance(record.args, tuple) else ()
        if record.msg == "%s" and isinstance(args[0], BadInput):
            return messages.InputRefused.from_error(args[0], self._open_arguments)
        mark_arguments(record)
        text = spelled(self.format(record), in_python=True, objects=self._open_arguments)
        return LineLogged(without_controls(text), record.levelno >= logging.WARNING, shown)


def main(pipe: int, request_bytes: int, model_bytes: int) -> NoReturn:
    """Serves one request, and ends this process with the exit status of the command line."""
    started = time.monotonic()
    prepare_streams()
    os.set_inheritable(pipe, False)  # forks need the pipe; programs that they start do not
    request = msgpack.decode(read_input(request_bytes), type=ChildRequest)
    os.environ.update({ENDS_WITH_INPUT: "1", HANDED: str(model_bytes or "")})
    logger = logging.getLogger("mdgan")
    logger.setLevel(logging.DEBUG)
    sender = EventSender(Connection(pipe, readable=False), getattr(request, "open_arguments", ""))
    logger.handlers = [sender]
    end_process(partial(cli.status_of, partial(_serve, request, started)))


def _serve(request: ChildRequest, started: float) -> int:
    """Trains or compares by the functions that the command line calls."""
    if isinstance(request, messages.TrainingRequest):
        if request.faults:
            os.environ.setdefault(FAULTS, request.faults)
        run = None if request.resumes is None else Path(request.resumes)
        layers = read_layers(None, dict(request.settings), run)
        return train_given(Given(layers, launched=started, continues=run), dry_run=False)
    prepare_environment(many_processes=None)
    from mdgan.comparison.run import run_comparison

    configurations = request.configurations.items()
    files = {Path(f"{name}.json"): ConfigFile(settings, "") for name, settings in configurations}
    return run_comparison(
        files, {}, request.seeds, out=Path(request.out), jobs=request.jobs, resume=request.resume
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
