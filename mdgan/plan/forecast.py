"""From settings to the page of `mdgan plan`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch import machine
from mdgan.launch.models import tried_models
from mdgan.launch.ranks import local_ranks
from mdgan.launch.settings import LaunchSettings
from mdgan.plan.advice import Question, best_remedy
from mdgan.plan.forks import ForkFailed
from mdgan.plan.layout import Layout, Link
from mdgan.plan.measurement import Measurement
from mdgan.plan.padding_rows import padding_rows
from mdgan.plan.words import Page, in_words
from mdgan.settings.machine import num_cores


def foretell(
    settings: RunSettings,
    launch: LaunchSettings,
    dataset: DatasetFile,
    link: Link,
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
        shared: whether all processes are on one machine.
        shard_size: samples of a worker; None if the user has not said.

    Raises:
        BadInput: it cannot be measured here.
    """
    torch.set_num_threads(1)  # what is forked later must not have a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    builder = entry.build()
    hosts = local_ranks(settings, launch, None).hosts
    layout = Layout(
        hosts,
        cores=num_cores(),
        host_threads=machine.num_threads(launch, 1 + len(hosts) if shared else 1),
        server_threads=machine.num_threads(launch),
        shared=shared,
    )
    planning = builder.planning(settings, models, shard_size)
    try:
        measured = Measurement(entry, dataset, layout, planning).take()
        question = Question(layout, link, measured.costs, measured.traffic, planning)

        def with_settings(changes: Mapping[str, Any]) -> Question:
            other = builder.planning(replace(settings, **changes), models, shard_size)
            traffic = question.traffic
            if other.settings != planning.settings:
                bytes_now = Measurement(entry, dataset, layout, other).count()
                traffic = replace(traffic, out=bytes_now.out, back=bytes_now.back)
            return replace(question, planning=other, traffic=traffic)

        forecast = question.answer()
        remedy = best_remedy(question, forecast, with_settings)
    except ForkFailed as error:
        raise BadInput(
            f"--batch-size {settings.batch_size}: {entry.unit}s cannot be measured here ({error}); "
            "try a smaller one"
        ) from error
    # κ is what an algorithm calls so; it does not depend on the size of shards.
    kappa = dict(builder.describe(settings, models, [[shard_size or 1]])).get("κ")
    title = _title(settings, layout, kappa)
    told = question, forecast, measured, remedy, padding_rows(settings, dataset)
    return in_words(Page(entry.unit, title, settings.iterations, *told))


def _title(settings: RunSettings, layout: Layout, kappa: str | None) -> str:
    where = "on one machine" if layout.shared else "on machines of their own"
    generated = "" if kappa is None else f", κ = {kappa}"
    return (
        f"{settings.dataset}: {layout.num_workers} worker(s) in {len(layout.hosts)} host(s) and "
        f"the server, {where} of {layout.cores} core(s); b = {settings.batch_size}{generated}"
    )
