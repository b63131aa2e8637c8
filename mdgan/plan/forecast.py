"""From settings to the page of `mdgan plan`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import ClassCounts, Placing
from mdgan.launch import machine
from mdgan.launch.holdings import read_data
from mdgan.launch.models import tried_models
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.settings import LaunchSettings
from mdgan.plan.advice import Question, best_remedy
from mdgan.plan.carried import Rounds, worker_part
from mdgan.plan.forks import ForkFailed
from mdgan.plan.layout import Layout, Link, Workers, consecutive
from mdgan.plan.machines import Machines, shared_out
from mdgan.plan.measurement import Measurement
from mdgan.plan.padding_rows import padding_part
from mdgan.plan.words import Page, in_words
from mdgan.settings.machine import num_cores

_log = logging.getLogger(__name__)


def foretell(
    settings: RunSettings,
    launch: LaunchSettings,
    dataset: DatasetFile,
    link: Link,
    machines: Sequence[Machines],
    *,
    shared: bool,
    shard_size: int | None,
) -> str:
    """Measures, predicts, and puts it into words.

    Args:
        settings: of the planned run, whose algorithm has hosts.
        launch: how many workers a host carries, and how many threads a process has.
        dataset: the dataset file.
        link: of every machine.
        machines: those of the run besides the server's, if the user has named them.
        shared: whether all processes are on one machine.
        shard_size: samples of a worker; None if the user has not said.

    Raises:
        BadInput: it cannot be measured here.
    """
    torch.set_num_threads(1)  # what is forked later must not have a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    builder = entry.build()
    settings, machines = _with_hosts(settings, machines, shared=shared)
    class_counts = _class_counts(settings, dataset, shard_size)
    planning = builder.planning(settings, models, class_counts)
    layout, carried = _layout(settings, launch, machines, shared=shared)
    more = [worker_part(machines, carried)] if machines and not planning.placing else []
    try:
        here = len(carried) if shared else 1
        measured = Measurement(entry, dataset, layout, planning, here).take()
        question = Question(layout, link, measured.costs, measured.traffic, planning)
        if planning.placing is not None:
            rounds = Rounds(planning.placing, measured, question, machines)
            question, more = rounds.asked(planning.placing.a_step)[0], rounds.parts()

        def with_settings(changes: Mapping[str, Any]) -> Question:
            other = builder.planning(settings.but(**changes), models, class_counts)
            traffic = question.traffic
            if other.settings != planning.settings:
                bytes_now = Measurement(entry, dataset, layout, other).count()
                traffic = replace(traffic, out=bytes_now.out, back=bytes_now.back)
            return replace(question, planning=other, traffic=traffic)

        forecast = question.answer()
        remedy = best_remedy(question, forecast, with_settings)
    except ForkFailed as error:
        raise BadInput(
            f"--batch-size {settings.training.batch_size}: {entry.unit}s cannot be measured here "
            f"({error}); "
            "try a smaller one"
        ) from error
    described = dict(builder.describe(settings, models, [[1]]))
    title = _title(settings, layout, planning.placing, described, shared=shared)
    told = question, forecast, measured, remedy, [*more, padding_part(settings, dataset)]
    return in_words(Page(entry.unit, title, settings.training.iterations, *told))


def _with_hosts(
    settings: RunSettings, machines: Sequence[Machines], *, shared: bool
) -> tuple[RunSettings, Sequence[Machines]]:
    """If ranks are hosts of clients: settings with a host on each machine, and what these are."""
    if settings.num_roaming is None:
        return settings, machines
    if not machines:
        return settings, [Machines(settings.num_workers, "host here" if shared else "like here")]
    return settings.but(world_size=1 + sum(each.count for each in machines)), machines


def _class_counts(
    settings: RunSettings, dataset: DatasetFile, shard_size: int | None
) -> ClassCounts | None:
    """What each worker holds, or each client without a home; None if that is not known."""
    if shard_size is not None:
        return [[shard_size]] * (settings.num_roaming or settings.num_workers)
    if settings.num_roaming is None:
        return None
    nobody = LocalRanks(serves=True, hosts=(), complete=False)
    entry = registry.algorithm(settings.algorithm)
    try:
        clients, _ = read_data(entry, settings, dataset, nobody, show_all=False)
    except BadInput as error:
        _log.warning("what clients hold is not known (%s)", error)
        return None
    return None if clients is None else list(clients.class_counts().values())


def _layout(
    settings: RunSettings, launch: LaunchSettings, machines: Sequence[Machines], *, shared: bool
) -> tuple[Layout, Sequence[Workers]]:
    """Who computes where, and the workers of each machine that the user has named, maybe none."""
    carried = local_ranks(settings, launch, None).hosts
    speeds = [each.speed for each in machines for _ in range(each.count)]
    roam = settings.num_roaming is not None
    if speeds:
        carried = consecutive(
            [1] * len(speeds) if roam else shared_out(settings.num_workers, speeds)
        )
    at_once = 1 + len(carried) if shared else 1
    layout = Layout(
        tuple(filter(None, carried)),
        cores=num_cores(),
        host_threads=machine.num_threads(launch, at_once),
        server_threads=machine.num_threads(launch),
        shared=shared and not roam,  # slots are measured as they share cores
        speeds=tuple(speed for speed, own in zip(speeds, carried, strict=False) if own),
    )
    return layout, carried


def _title(
    settings: RunSettings,
    layout: Layout,
    placing: Placing | None,
    described: Mapping[str, str],
    *,
    shared: bool,
) -> str:
    where = "one machine" if shared else "machines of their own"
    # κ is what an algorithm calls so; it does not depend on the size of shards.
    generated = f", κ = {described['κ']}" if "κ" in described else ""
    who = f"{layout.num_workers} worker(s)"
    about = ""
    if placing is not None:
        who, about = f"{placing.a_step:,} of {placing.clients:,} clients", f"; {placing.about}"
    return (
        f"{settings.data.dataset}: {who} in {len(layout.hosts)} host(s) and the server, on {where} "
        "of "
        f"{layout.cores} core(s); b = {settings.training.batch_size}{generated}{about}"
    )
