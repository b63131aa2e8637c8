"""`mdgan plan`: what a run will take, before it is started."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import click

from mdgan.cli.environment import prepare_environment
from mdgan.cli.options import read_layers, settings_options
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.resolve import known_settings
from mdgan.launch.settings import LaunchSettings
from mdgan.plan.layout import Layout, Link

_OFFERED = ("workers_per_host", "threads", "datasets_dir")
_NOT_OFFERED = [
    name
    for name in known_settings() - set(_OFFERED)
    if name not in registry.declared_settings()
    or not registry.declared_settings()[name].metadata["shared"]
]
_MOST_MILLISECONDS = 1e7
_MOST_MEGABITS = 1e9


@click.command()
@settings_options(leave_out=("algorithm", *_NOT_OFFERED))
@click.option(
    "--bandwidth",
    type=click.FLOAT,
    metavar="MBIT",
    help="Megabits a second of every machine's link, each way.  [default: no limit]",
)
@click.option(
    "--latency",
    type=click.FLOAT,
    default=0.0,
    show_default=True,
    metavar="MS",
    help="Milliseconds from one machine to another.",
)
@click.option(
    "--machines",
    type=click.Choice(["one", "each"]),
    default="one",
    show_default=True,
    help="All processes share the cores of one machine like this, or each has its own.",
)
@click.option(
    "--shard-size",
    type=click.IntRange(1),
    metavar="M",
    help="Samples of a worker, which say how often --swap-epochs swaps.",
)
def plan(
    config: Path | None,
    bandwidth: float | None,
    latency: float,
    machines: str,
    shard_size: int | None,
    **flags: Any,
) -> None:
    """Predict time, bytes and memory of a run, and name its bottleneck.

    Measures this machine for a few seconds with the data set's models. Needs no data and writes
    nothing. The machines of the run are taken to be like this one.
    """
    layers = read_layers(config, flags)
    link = _link(bandwidth, latency)
    # How and where a finished run went does not matter, only what it computed.
    chosen = build_deployment({"transport": "tcp"}, *layers)
    deployment = replace(chosen, ranks=None)
    if deployment.device != "cpu":
        raise BadInput(
            f"--device {deployment.device}: only CPUs can be planned for; leave it out of --config"
        )
    build_experiment({"algorithm": "mdgan"}, *layers)  # a wrong flag is answered at once
    prepare_environment(many_processes=True)
    print(_forecast(layers, deployment, link, shared=machines == "one", shard_size=shard_size))


def _link(bandwidth: float | None, latency: float) -> Link:
    """What was said of the network.

    Raises:
        BadInput: it cannot be.
    """
    if bandwidth is not None and not 0 < bandwidth <= _MOST_MEGABITS:
        raise BadInput(
            f"--bandwidth {bandwidth:g}: must be megabits a second above 0; without a limit leave "
            "it out"
        )
    if not 0 <= latency <= _MOST_MILLISECONDS:
        raise BadInput(f"--latency {latency:g}: must be milliseconds, 0 or more")
    return Link(inf if bandwidth is None else 1e6 * bandwidth, 1e-3 * latency)


def _forecast(
    layers: Sequence[Mapping[str, Any]],
    deployment: LaunchSettings,
    link: Link,
    *,
    shared: bool,
    shard_size: int | None,
) -> str:
    """Measures, predicts, and puts it into words.

    Args:
        layers: what the user gave.
        deployment: made of it.
        link: of every machine.
        shared: whether all processes are on one machine.
        shard_size: samples of a worker, if anybody knows.
    """
    import torch

    from mdgan.data import dataset_file
    from mdgan.launch import machine
    from mdgan.launch.ranks import local_ranks
    from mdgan.plan.advice import Question
    from mdgan.plan.measurement import Measurement
    from mdgan.plan.traffic import Paper, count_traffic
    from mdgan.plan.words import in_words

    torch.set_num_threads(1)  # what is forked later must not have a pool of threads
    dataset = dataset_file.load(build_experiment(*layers).dataset, deployment.datasets_dir)
    experiment = build_experiment({"algorithm": "mdgan"}, *layers, dataset.defaults)
    dataset_file.check_models(dataset)
    hosts = local_ranks(experiment, deployment, None).hosts
    layout = Layout(
        hosts,
        cores=machine.num_cores(),
        host_threads=machine.worker_threads(deployment, 1 + len(hosts) if shared else 1),
        server_threads=machine.server_threads(deployment),
        shared=shared,
    )
    measured = Measurement(dataset, experiment, layout).take()
    known = shard_size is not None or experiment.swap_interval is not None
    every = experiment.swap_every(shard_size or 0) if known else 0
    traffic = count_traffic(experiment, dataset.shape, hosts, measured.swap_bytes)
    question = Question(experiment, dataset.shape, layout, link, measured.costs, traffic, every)
    paper = Paper.of(
        experiment.num_workers, experiment.batch_size, dataset.shape, measured.num_weights
    )
    return in_words(question, question.answer(), measured.memory, paper)
