"""`mdgan plan`: predicts what a run will take before the user starts it."""

import logging
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import click

from mdgan.cli.help import Command
from mdgan.cli.options import number, prepare_environment, read_layers, settings_options
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.given import Given, known_settings
from mdgan.launch.settings import LaunchSettings
from mdgan.plan.layout import Link, parse_machines
from mdgan.spelling import flag

_log = logging.getLogger(__name__)

_OFFERED = ("workers_per_host", "threads", "datasets_dir", "data_dir", "slots", "placement")
_NOT_OFFERED = [
    name
    for name in known_settings().keys() - set(_OFFERED)
    if name not in registry.declared_settings() or not registry.declared_settings()[name].shared
]
_MOST_MILLISECONDS = 1e7
_MOST_MEGABITS = 1e9


@click.command(cls=Command, examples=("mdgan plan --world-size 21 --bandwidth 100",))
@settings_options(leave_out=_NOT_OFFERED)
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
    metavar="MS",
    help="Milliseconds from one machine to another.",
)
@click.option(
    "--machines",
    default="one",
    metavar="one|each|LIST",
    help="All processes share the cores of one machine like this, or each has its own; or these "
    'beside the server\'s: "4x fast, 8x slow:0.5/2" are eight that are half as fast as this, with '
    "two --slots each.",
)
@number(
    "--shard-size",
    least=1,
    metavar="M",
    help="Samples of a worker: how often --swap-epochs swaps, how long round_epochs are.",
)
@click.option(
    "--price-per-gb",
    type=click.FLOAT,
    metavar="PRICE",
    help="What 10⁹ bytes between machines cost you, in any currency: the page says what the run's "
    "traffic costs.",
)
def plan(
    config: Path | None,
    bandwidth: float | None,
    latency: float,
    machines: str,
    shard_size: int | None,
    price_per_gb: float | None,
    **flags: Any,
) -> None:
    """Predict time, bytes and memory of a run, and name its bottleneck.

    Trains the data set's models on noise for a few seconds on this machine. Needs no data, but
    takes the size of pictures from those in --data-dir, if any. Assumes that the machines of the
    run are like this one. Writes no file.
    """
    # --config may be that of a finished run; the plan is for other machines.
    layers = [{"transport": "tcp"}, *read_layers(config, flags)]
    link = _link(bandwidth, latency)
    if price_per_gb is not None and not 0 <= price_per_gb < inf:
        raise BadInput(flag("price_per_gb", f"{price_per_gb:g}"), "must be a price, 0 or more")
    groups = () if machines in ("one", "each") else parse_machines(machines)
    launch = LaunchSettings.read(*layers).but(ranks=None)
    if launch.device != "cpu":
        way_out = f"leave it out of {flag('config')}"
        raise BadInput(flag("device", launch.device), "only CPUs can be planned for", way_out)
    launch.carried("mdgan plan")
    entry = registry.chosen_algorithm(layers)
    if not entry.has_hosts:
        why = "one process does everything, so there is nothing to plan"
        raise BadInput(flag("algorithm", entry.name), why, "name one that has workers")
    named = replace(Given(layers).named(), launch=launch)
    if named.draft.secure.secure_aggregation:
        why = "mdgan plan cannot foretell what masks cost"
        way_out = "plan without, and count twice the bytes from hosts to the server"
        raise BadInput(flag("secure_aggregation"), why, way_out)
    prepare_environment(many_processes=True)
    _log.info("loading PyTorch and the data set's models …", extra={"shown": "doing"})
    from mdgan.launch.settled import load, settle
    from mdgan.plan.forecast import foretell

    shared, data = machines == "one", named.draft.data
    looks = shared and data.data_folder(data.dataset, 1).exists()  # training would look as well
    settled = settle(load(named, looks_at_folders=looks))
    for note in settled.notes:
        _log.info("%s", note)
    settings, dataset = settled.settings, settled.dataset
    page = foretell(
        settings,
        launch,
        dataset,
        link,
        groups,
        shared=shared,
        shard_size=shard_size,
        price_per_gb=price_per_gb,
    )
    _log.info("%s", page, extra={"shown": "result"})


def _link(bandwidth: float | None, latency: float) -> Link:
    if bandwidth is not None and not 0 < bandwidth <= _MOST_MEGABITS:
        why = "must be megabits a second above 0"
        raise BadInput(flag("bandwidth", f"{bandwidth:g}"), why, "without a limit leave it out")
    if not 0 <= latency <= _MOST_MILLISECONDS:
        raise BadInput(flag("latency", f"{latency:g}"), "must be milliseconds, 0 or more")
    return Link(inf if bandwidth is None else 1e6 * bandwidth, 1e-3 * latency)
