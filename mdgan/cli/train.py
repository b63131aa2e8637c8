"""`mdgan train` and `mdgan standalone`."""

import sys
from pathlib import Path
from typing import Any

import click

from mdgan.cli.environment import prepare_environment
from mdgan.cli.options import read_layers, settings_options
from mdgan.families.algorithms import NOT_OF
from mdgan.launch.resolve import resolve

_NOT_STANDALONE = (
    *("world_size", "swap", "swap_interval", "swap_epochs", "partition", "workers_per_host"),
    *("transport", "ranks", "master_addr", "master_port", "network_interface"),
    *("connect_timeout", "join_token", "insecure", "deadline", "quorum", "liveness_timeout"),
    *("patience", "strikes", "checkpoint_to_server", "aggregation", "vectorize", "tune"),
    *("participation", "on_deadline", *NOT_OF["mdgan"]),
)

_resume = click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Go on with a run from its newest checkpoint, with its settings; flags win.",
)


@click.command()
@settings_options()
@_resume
@click.option("--dry-run", is_flag=True, help="Print the settings and who would hold what; stop.")
@click.pass_obj
def train(
    started: float, /, config: Path | None, resume: Path | None, dry_run: bool, **flags: Any
) -> int:
    """Train a GAN on data that stays where it is: rank 0 is the server, ranks 1.. are workers.

    Without --ranks every rank runs on this machine. To use several machines, start the same command
    on each with its own --ranks and rank 0's --master-addr. A dataset file may bring defaults of
    its own; --dry-run shows what holds.
    """
    return _run(None, started, read_layers(config, flags, resume), resume, dry_run)


@click.command()
@settings_options(leave_out=("algorithm", *_NOT_STANDALONE))
@_resume
@click.option("--dry-run", is_flag=True, help="Print the settings and the data held; stop.")
@click.pass_obj
def standalone(
    started: float, /, config: Path | None, resume: Path | None, dry_run: bool, **flags: Any
) -> int:
    """Train the same models in one process that holds all data: the baseline."""
    return _run("standalone", started, read_layers(config, flags, resume), resume, dry_run)


def _run(
    algorithm: str | None,
    started: float,
    layers: list[dict[str, Any]],
    resume: Path | None,
    dry_run: bool,
) -> int:
    # Before torch is imported a wrong flag is answered at once, and this still has an effect.
    resolved = resolve(layers, algorithm)
    prepare_environment(
        many_processes=resolved.experiment.algorithm != "standalone"
        and resolved.deployment.transport == "tcp"
    )
    from mdgan.inspect.describe import describe
    from mdgan.launch.launcher import launch
    from mdgan.launch.prepare import make_plan

    plan = make_plan(
        *layers, algorithm=algorithm, show_all=dry_run, launched=started, continues=resume
    )
    for warning in plan.warnings:
        print(f"mdgan: warning: {warning}", file=sys.stderr)
    if dry_run:
        print(describe(plan))
        return 0
    return launch(plan)
