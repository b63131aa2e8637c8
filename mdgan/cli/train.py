"""Commands that start processes of a run: `train`, `standalone`, `join`, `standby`."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mdgan.cli import options
from mdgan.cli.help import Command, RareOption
from mdgan.cli.logs import begin_long_command, say_loading
from mdgan.errors import ITS_MACHINE_SAYS, BadInput
from mdgan.families import registry
from mdgan.launch.given import Given
from mdgan.launch.task import LAUNCHERS, RayCluster, read_resources
from mdgan.spelling import flag, spelled

_log = logging.getLogger(__name__)

_OF_HOSTS = (
    *("world_size", "partition", "participation", "workers_per_host", "transport", "ranks"),
    *("master_addr", "master_port", "network_interface", "connect_timeout"),
    *("listen", "credentials", "ca", "certificate", "key", "revoked"),
    *("insecure", "deadline", "quorum", "liveness_timeout", "patience", "strikes"),
    *("checkpoint_to_server", "shut_out_free_riders"),
)
"""Settings that have no meaning in one process that holds all data."""

_NOT_BASELINE = [
    name
    for name in registry.declared_settings()
    if registry.BASELINE not in registry.with_setting(name) or name in ("algorithm", *_OF_HOSTS)
]

_resume = click.option(
    "--resume",
    type=options.PATH,
    shell_complete=options.complete_runs,
    metavar="RUN",
    help="Go on with a run from its newest checkpoint, with its settings; flags win.",
)


@click.command(
    cls=Command,
    examples=(
        "mdgan train --iterations 300 --out runs/first",
        "mdgan train --dataset mnist --world-size 11",
        "mdgan train --config runs/first/config.json --seed 1",
        "mdgan train --resume runs/first --iterations 600",
        "mdgan train --algorithm fl-gan --partition shards:2",
    ),
)
@options.settings_options()
@click.option(
    "--launcher",
    cls=RareOption,
    type=click.Choice(LAUNCHERS),
    default="auto",
    help="What starts the ranks: mdgan itself as processes of this machine, or torchrun, Slurm's "
    "srun, Ray. auto: torchrun or Slurm where one of them has started this process.",
)
@click.option(
    "--ray-address",
    cls=RareOption,
    metavar="HOST:PORT",
    help="Ray's cluster.  [default: the one that Ray finds, else a new one on this machine]",
)
@click.option(
    "--host-resources",
    cls=RareOption,
    metavar="JSON",
    help='What each process reserves of Ray\'s cluster.  [default: {"CPU": 1}]',
)
@_resume
@click.option(
    "--resume-or-start",
    cls=RareOption,
    type=options.PATH,
    shell_complete=options.complete_runs,
    metavar="RUN",
    help="Go on with RUN if it has a checkpoint, else start it there: for jobs that a cluster "
    "starts again with the same flags.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print what would run, and what each worker would hold."
)
@click.pass_obj
def train(
    started: float,
    /,
    config: Path | None,
    launcher: str,
    ray_address: str | None,
    host_resources: str | None,
    resume: Path | None,
    resume_or_start: Path | None,
    dry_run: bool,
    **flags: Any,
) -> int:
    """Train a GAN on data that stays where it is: rank 0 is the server, ranks 1.. are workers.

    Every rank runs here unless --ranks says which do; start the others with the same command and
    rank 0's --master-addr. Defaults stand in brackets; a dataset file may bring its own, which
    --dry-run shows. --help-all says more of each flag.
    """
    if resume_or_start is not None:
        if resume is not None or flags["out"] is not None:
            other_flag = flag("resume" if resume is not None else "out")
            this_flag = flag("resume_or_start", resume_or_start)
            raise BadInput(this_flag, "names the run", f"leave {other_flag} out")
        flags["out"] = str(resume_or_start)
    scaled_from = str(config) if flags["paper_scale"] else ""
    layers = options.read_layers(config, flags, resume)
    started_by: Any = launcher
    if launcher == "ray":
        started_by = RayCluster(ray_address, read_resources(host_resources))
        if flags["master_addr"] is not None:
            this_flag = flag("master_addr", flags["master_addr"])
            raise BadInput(this_flag, "Ray says where the server runs", "leave it out")
    elif ray_address is not None or host_resources is not None:
        other_flag = flag("ray_address" if ray_address is not None else "host_resources")
        why = f"is for {flag('launcher', 'ray')} alone"
        raise BadInput(other_flag, why, f"add that, or leave {other_flag} out")
    settings = Given(
        layers,
        launcher=started_by,
        launched=started,
        continues=resume,
        resumes_or_starts=resume_or_start is not None,
        scaled_from=scaled_from,
    )
    return train_given(settings, dry_run=dry_run)


@click.command(cls=Command, examples=("mdgan standalone --out runs/baseline",))
@options.settings_options(leave_out=(*_NOT_BASELINE, *_OF_HOSTS))
@_resume
@click.option("--dry-run", is_flag=True, help="Print the settings and the data held; stop.")
@click.pass_obj
def standalone(
    started: float, /, config: Path | None, resume: Path | None, dry_run: bool, **flags: Any
) -> int:
    """Train the same models in one process that holds all data: the baseline."""
    scaled_from = str(config) if flags["paper_scale"] else ""
    layers = options.read_layers(config, {**flags, "algorithm": registry.BASELINE}, resume)
    settings = Given(layers, launched=started, continues=resume, scaled_from=scaled_from)
    return train_given(settings, dry_run=dry_run)


def train_given(settings: Given, *, dry_run: bool) -> int:
    """Trains with the user's settings, and returns the exit status.

    Args:
        dry_run: whether to print what would run, and train nothing.
    """
    # Before torch is imported: a wrong flag is reported at once, and the environment has an effect.
    named = settings.named()
    begin_long_command(named.launch.log_file)
    many_processes = not named.is_one_process
    compiles = named.draft.training.arithmetic.compile
    options.prepare_environment(many_processes=many_processes, compiles=compiles)
    warning_of_cores = None if many_processes or dry_run else options.prepare_for_load(named.launch)
    say_loading()
    from mdgan.inspect.describe import describe
    from mdgan.launch.checked import check
    from mdgan.launch.guests import decline
    from mdgan.launch.launcher import launch
    from mdgan.launch.settled import load, settle

    try:
        settled = settle(load(named))
        if named.algorithm.has_hosts and named.launch.workers_per_host == "auto":
            from mdgan.plan.host_size import best_host_size

            size = best_host_size(settled.settings, settled.launch, settled.dataset)
            settled = replace(settled, launch=settled.launch.but(workers_per_host=size))
        checked = check(settled, show_all=dry_run)
    except BadInput as error:
        if dry_run:
            raise
        _log.error("%s", error, extra={"shown": "refusal"})
        decline(named, error)
        return 2
    for warning in (*checked.warnings, *filter(None, [warning_of_cores])):
        _log.warning("warning: %s", warning)
    if dry_run:
        print(spelled(describe(checked)))
        return 0
    if (status := launch(checked)) == 2:
        decline(named, BadInput(ITS_MACHINE_SAYS))
    return status


_OF_THE_SERVER = (
    "init_from",
    *("workers_per_host", "vectorize", "transport", "ranks", "eval_interval", "eval_samples"),
    *("held_out", "tracker", "sample_interval", "log_interval"),
    *("deadline", "on_deadline", "quorum", "strikes"),
    *("checkpoint_interval", "checkpoint_keep", "checkpoint_to_server"),
)


@click.command(
    cls=Command,
    examples=("mdgan join runs/first", "mdgan join --master-addr 10.0.0.1 --credentials run.cred"),
)
@click.argument("run", type=options.PATH, required=False)
@options.settings_options(leave_out=_OF_THE_SERVER, shared=False)
@click.option(
    "--site",
    type=options.PATH,
    metavar="FILE",
    help="JSON with settings of this machine, and the studies that it has approved; flags win.",
)
@click.pass_obj
def join(started: float, /, run: Path | None, site: Path | None, **flags: Any) -> int:
    """Take part in a training that is under way, as one more worker.

    RUN is the folder of a run whose server is on this machine; else --master-addr says where it is.

    The server gives this worker a rank, the settings of the run, and a copy of a live worker's
    discriminator. The worker trains on the data of a lost rank, or else on all of --data-dir.
    """
    begin_long_command(flags["log_file"])
    options.prepare_environment(many_processes=True, compiles=bool(flags.get("compile")))
    say_loading()
    from mdgan.launch.guests import join as take_part

    if site is None:
        return take_part(flags, started, run)
    from mdgan.launch.site_file import SiteFile

    site_file = SiteFile.read(site)
    flags_set = {name: value for name, value in flags.items() if value is not None}
    return take_part({**site_file.settings, **flags_set}, started, run, check=site_file.check_asked)


_OF_THE_RUN = ("workers_per_host", "vectorize", "transport", "ranks", "out")


@click.command(cls=Command, examples=("mdgan standby runs/first --master-addr 10.0.0.1,10.0.0.2",))
@options.run_argument
@options.settings_options(leave_out=_OF_THE_RUN, shared=False)
@click.pass_obj
def standby(started: float, /, run: Path, **flags: Any) -> int:
    """Watch the server of RUN, and replace it from the newest checkpoint when it has failed.

    RUN is the server's --out folder, on a disk that both machines share or that is replicated here.
    Start every rank and the standby with the same --master-addr SERVER,STANDBY.
    """
    begin_long_command(flags["log_file"])
    options.prepare_environment(many_processes=True)
    from mdgan.launch.guests import stand_by

    return stand_by(run, flags, started)
