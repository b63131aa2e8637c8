"""The command line: one command a file, each of which parses flags and calls one function."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from mdgan import __version__
from mdgan.cli.chaos import chaos
from mdgan.cli.compare import compare
from mdgan.cli.datasets import datasets
from mdgan.cli.evaluate import evaluate
from mdgan.cli.join import join
from mdgan.cli.logs import show_logs
from mdgan.cli.plan import plan
from mdgan.cli.report import report
from mdgan.cli.sample import sample
from mdgan.cli.standby import standby
from mdgan.cli.token import token
from mdgan.cli.trace import trace
from mdgan.cli.train import standalone, train
from mdgan.cli.watch import watch
from mdgan.errors import BadInput

_STARTED = time.monotonic()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="mdgan")
@click.pass_context
def cli(context: click.Context) -> None:
    """Train one GAN over data that cannot be moved (MD-GAN, Hardy et al. 2019)."""
    context.obj = _STARTED


for _command in (
    *(plan, train, standalone, join, standby, token),
    *(compare, watch, report, evaluate, sample, trace, datasets, chaos),
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line. Bad input is one line on the standard error and exit status 2."""
    show_logs()
    try:
        status = cli.main(arguments, prog_name="mdgan", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        status = 0
    except click.ClickException as error:
        print("mdgan: " + " ".join(error.format_message().split()), file=sys.stderr)
        status = 2
    except BadInput as error:
        print(f"mdgan: {error}", file=sys.stderr)
        status = 2
    except (click.Abort, KeyboardInterrupt):
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


def run() -> NoReturn:
    """Runs the command line as a program, and ends this process at once.

    When a command returns, its work is done. To take torch apart object by object, as Python does
    at its end, would take over a second.
    """
    status = 1
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the reader of a pipe may be gone
            stream.flush()
    os._exit(status)
