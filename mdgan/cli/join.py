"""`mdgan join`: adds a worker to a training that is under way."""

from typing import Any

import click

from mdgan.cli.environment import prepare_environment
from mdgan.cli.options import settings_options

_SERVERS = (
    *("workers_per_host", "vectorize", "transport", "ranks", "eval_interval", "eval_samples"),
    *("held_out", "tensorboard", "sample_interval", "log_interval"),
    *("deadline", "on_deadline", "quorum", "strikes"),
    *("checkpoint_interval", "checkpoint_keep", "checkpoint_to_server"),
)


@click.command()
@settings_options(leave_out=_SERVERS, shared=False)
@click.pass_obj
def join(started: float, /, **flags: Any) -> int:
    """Take part in a training that is under way, as one more worker.

    The server gives this worker a rank, the settings of the run, and a copy of a live worker's
    discriminator. Its data is that of a rank that has gone, or else all of --data-dir.
    """
    prepare_environment(many_processes=True)
    from mdgan.launch.join import join as take_part

    return take_part(flags, started)
