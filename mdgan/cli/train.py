"""`mdgan train` and `mdgan standalone`: start a training, or go on with one."""

import sys
from pathlib import Path
from typing import Any

import click

from mdgan.cli.environment import prepare_environment
from mdgan.cli.options import read_layers, settings_options
from mdgan.families import registry
from mdgan.launch.resolve import resolve

_OF_HOSTS = (
    *("world_size", "partition", "participation", "workers_per_host", "transport", "ranks"),
    *("master_addr", "master_port", "network_interface", "connect_timeout", "join_token"),
    *("insecure", "deadline", "quorum", "liveness_timeout", "patience", "strikes"),
    "checkpoint_to_server",
)
"""Settings that make no sense in one process that holds all data."""

_NOT_BASELINE = [
    name
    for name in registry.declared_settings()
    if registry.BASELINE not in registry.with_setting(name) or name in ("algorithm", *_OF_HOSTS)
]

_resume = click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Go on with a run from its newest checkpoint, with its settings; flags win.",
)


@click.command()
@settings_options()
@_resume
@click.option(
    "--dry-run", is_flag=True, help="Print the settings and what each worker would hold; stop."
)
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
@settings_options(leave_out=(*_NOT_BASELINE, *_OF_HOSTS))
@_resume
@click.option("--dry-run", is_flag=True, help="Print the settings and the data held; stop.")
@click.pass_obj
def standalone(
    started: float, /, config: Path | None, resume: Path | None, dry_run: bool, **flags: Any
) -> int:
    """Train the same models in one process that holds all data: the baseline."""
    return _run(registry.BASELINE, started, read_layers(config, flags, resume), resume, dry_run)


def _run(
    algorithm: str | None,
    started: float,
    layers: list[dict[str, Any]],
    resume: Path | None,
    dry_run: bool,
) -> int:
    # Before torch is imported: a wrong flag is reported at once, and the environment has an effect.
    resolved = resolve(layers, algorithm)
    has_hosts = registry.algorithm(resolved.settings.algorithm).has_hosts
    prepare_environment(many_processes=has_hosts and resolved.launch.transport == "tcp")
    from mdgan.inspect.describe import describe
    from mdgan.launch.launcher import launch
    from mdgan.launch.prepare import prepare

    prepared = prepare(
        *layers, algorithm=algorithm, show_all=dry_run, launched=started, continues=resume
    )
    for warning in prepared.warnings:
        print(f"mdgan: warning: {warning}", file=sys.stderr)
    if dry_run:
        print(describe(prepared))
        return 0
    return launch(prepared)
