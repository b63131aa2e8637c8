"""`mdgan compare`: trains several configurations with the same data and seeds."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mdgan.cli.help import Command
from mdgan.cli.options import PATH, number_or_auto, prepare_environment, settings_options

_OF_EACH_CONFIGURATION = ("algorithm", "seed", "out", "log_file")
_OF_SEVERAL_MACHINES = (
    *("ranks", "master_addr", "master_port", "network_interface", "listen"),
    *("credentials", "ca", "certificate", "key", "revoked", "insecure"),
)


def _read_seeds(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        raise click.BadParameter(f"{text!r} is not whole numbers with commas between them")
    return tuple(dict.fromkeys(map(int, parts)))


def _read_jobs(_context: click.Context, _option: click.Parameter, jobs: int | str) -> int | None:
    if isinstance(jobs, int) and jobs < 1:
        raise click.BadParameter(f"{jobs} must be at least 1, or auto")
    return jobs if isinstance(jobs, int) else None


@click.command(cls=Command, examples=("mdgan compare examples/competitors/*.json --seeds 0,1",))
@click.argument("configs", nargs=-1, required=True, metavar="CONFIG...", type=PATH)
@click.option(
    "--seeds",
    callback=_read_seeds,
    default="0,1,2",
    metavar="S,…",
    help="Train every configuration once with each seed.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Folder for all runs, the report and the table.  [default: runs/compare-TIME]",
)
@click.option(
    "--jobs",
    type=number_or_auto,
    callback=_read_jobs,
    default=1,
    metavar="N|auto",
    help="Trainings at once; auto: as many as cores allow with their --threads. Side by side they "
    "slow one another down: for times to be comparable, leave it at 1.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the comparison in --out: skip finished runs, go on from checkpoints.",
)
@click.option(
    "--dry-run", is_flag=True, help="Check all configurations, say what would train, and stop."
)
@settings_options(leave_out=(*_OF_EACH_CONFIGURATION, *_OF_SEVERAL_MACHINES), config=False)
def compare(
    configs: tuple[Path, ...], seeds: tuple[int, ...], out: Path | None, **flags: Any
) -> int:
    """Train every CONFIG with every seed, and put them side by side in one report.

    CONFIG is a file as for `mdgan train --config`, or a folder with *.json files; the report uses
    its name. If the "faults" of a file strike the server, the run goes on from its checkpoint.
    Flags of settings hold for all runs and override the files. Every run has a folder NAME-seedS in
    --out and prints into NAME-seedS.log. The report is --out/report.html, the numbers are in
    --out/comparison.json.

    Exit status 1 means that some training failed; the report still shows the others.
    """
    prepare_environment(many_processes=None)
    from mdgan.comparison.plan import read_files
    from mdgan.comparison.run import run_comparison

    out = out or Path(f"runs/compare-{datetime.now():%Y%m%d-%H%M%S}")
    how = {name: flags.pop(name) for name in ("jobs", "resume", "dry_run", "paper_scale")}
    files = read_files(configs, paper_scale=how["paper_scale"])
    return run_comparison(files, flags, seeds, out=out, **how)
