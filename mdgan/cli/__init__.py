"""The command line. Each command parses its flags and calls one function of a room below."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from mdgan.cli.chaos import chaos
from mdgan.cli.compare import compare
from mdgan.cli.credentials import credentials
from mdgan.cli.help import Commands
from mdgan.cli.inspect import audit, datasets, evaluate, ledger, log, report, sample, trace, watch
from mdgan.cli.logs import prepare_streams, show_logs
from mdgan.cli.plan import plan
from mdgan.cli.release import release, verify
from mdgan.cli.schema import schema
from mdgan.cli.study import approve, job
from mdgan.cli.train import join, standalone, standby, train
from mdgan.errors import BadInput, cannot_write, is_of_disk
from mdgan.families import registry
from mdgan.launch.forks import end_process
from mdgan.version import __version__

_log = logging.getLogger(__name__)
_REFUSED = {"shown": "refusal"}

_STARTED = time.monotonic()


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="mdgan")
@click.pass_context
def cli(context: click.Context) -> None:
    """Train one GAN over data that cannot be moved (MD-GAN, Hardy et al. 2019)."""
    context.obj = _STARTED


for _command in (
    *(datasets, schema, plan, train, watch, report, sample, evaluate, trace, standalone, compare),
    *(audit, ledger, release, verify, credentials, join, standby, job, approve, log, chaos),
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line. Bad input becomes one line on the standard error and exit status 2."""
    show_logs()
    try:
        status = status_of(lambda: cli.main(arguments, prog_name="mdgan", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        status = 0
    except click.ClickException as error:
        message = " ".join(error.format_message().split())
        if isinstance(error, click.NoSuchOption) or "--algorithm" in message:
            # An installed package that cannot be loaded may have that flag or algorithm.
            message = "; ".join([message, *registry.unusable().values()])
        _log.error("%s", message, extra=_REFUSED)
        status = 2
    except click.Abort:
        status = 130
    show_logs()  # undoes what the command has changed, such as --log-file
    sys.exit(status)


def status_of(command: Callable[[], object]) -> int:
    """Runs a command, logs why it failed if it did, and returns the exit status."""
    try:
        status = command()
    except BadInput as error:
        _log.error("%s", error, extra=_REFUSED)
        return 2
    except OSError as error:
        if not is_of_disk(error):
            raise
        _log.error("%s", cannot_write(error.filename or "a temporary file", error), extra=_REFUSED)
        return 1
    except KeyboardInterrupt:
        return 130
    return status if isinstance(status, int) else 0


def run() -> NoReturn:
    """Runs the command line as a program, and then ends this process at once."""
    prepare_streams()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
    end_process(main)


def _interrupt(*_: object) -> None:
    if getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False):
        os._exit(130)  # an exception would make its C++ abort
    raise KeyboardInterrupt
