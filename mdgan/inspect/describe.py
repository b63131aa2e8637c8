"""Describes a checked run in words, for `mdgan train --dry-run`."""

from math import sqrt
from typing import Any

import torch

from mdgan.engine.host.held_samples import HeldSamples
from mdgan.families.contract import ClassCounts, PlannedRun
from mdgan.gan.build import num_parameters
from mdgan.launch.checked import Checked
from mdgan.launch.ranks import ends_of
from mdgan.launch.requirements import least_parties
from mdgan.plan.expectations import expectations
from mdgan.spelling import count

_MOST_SHOWN = 12


def describe(checked: Checked) -> str:
    """Says what would train, what each worker would hold, and the models and settings."""
    dataset, models = checked.dataset, checked.models
    clients = checked.clients
    held = (_class_counts(checked, worker) for worker in checked.holdings)
    counts = list(held if clients is None else clients.class_counts().values())
    if checked.settings.privacy.keeps_classes:  # this page must not show them either
        counts = [[sum(each)] for each in counts]
    resolved = [
        ("dataset file", str(dataset.path)),
        ("sample shape", f"{' × '.join(map(str, dataset.shape))}, Z_DIM {models.z_dim}"),
        ("generator", f"{num_parameters(models.generator()):,} parameters"),
        ("discriminator", f"{num_parameters(models.discriminator()):,} parameters"),
        *checked.builder.describe(_planned_run(checked, counts)),
    ]
    if checked.algorithm.has_hosts:
        processes = ["rank 0"] if checked.ranks.serves else []
        processes += [f"rank {ends_of(host)}" for host in checked.ranks.hosts]
        resolved.append(("processes here", ", ".join(processes)))
    settings = {**checked.config, "out": checked.launch.out}
    lines = [_summary(checked), "holds"]
    if clients is None:
        lines += [f"  {_shard_in_words(checked, worker)}" for worker in checked.holdings]
    else:
        sizes = sorted(map(sum, counts))
        lines.append(
            f"  {len(sizes):,} clients, trained wherever there is room: {sizes[0]:,} samples at "
            f"least, {sizes[len(sizes) // 2]:,} in the middle, {sizes[-1]:,} at most"
        )
    lines += [*_noise_in_words(checked), "resolved"]
    lines += [f"  {name:20} {value}" for name, value in resolved]
    lines.append("settings")
    lines += [f"  {name:20} {'-' if value is None else value}" for name, value in settings.items()]
    return "\n".join(lines)


def _planned_run(checked: Checked, counts: ClassCounts) -> PlannedRun[Any]:
    """What the family needs to describe the run.

    Assumes that a host on another machine carries `--workers-per-host` workers as well, or one.
    """
    hosts, per_host = [*checked.ranks.hosts], checked.launch.workers_per_host
    size = per_host if isinstance(per_host, int) else 1
    local, workers = checked.ranks.workers(), range(1, checked.settings.num_workers + 1)
    distant = [worker for worker in workers if worker not in local]
    hosts += [tuple(distant[first : first + size]) for first in range(0, len(distant), size)]
    least = least_parties(checked.launch.links.require)
    return PlannedRun(checked.settings, checked.models, counts, hosts, least)


def _summary(checked: Checked) -> str:
    """Says in a line that the run can start, with its algorithm, size and data set."""
    settings = checked.settings
    trained_by = f" with {settings.num_workers:,} worker(s)" if checked.algorithm.has_hosts else ""
    if settings.num_placed is not None:
        trained_by = f" with {settings.num_placed:,} clients"
    hint = "; mdgan plan with these flags says how long" if checked.algorithm.has_hosts else ""
    return (
        f"can run: {settings.algorithm} trains {count(settings.training.iterations, 'iteration')} "
        f"on {checked.dataset.name}{trained_by} and batches of "
        f"{settings.training.batch_size}{hint}"
    )


def _noise_in_words(checked: Checked) -> list[str]:
    """Compares the noise of differential privacy with the signal; spends no privacy budget."""
    settings, models = checked.settings, checked.models
    shards = {rank: checked.shard(rank) for rank in checked.holdings}
    samples = HeldSamples(settings, shards, checked.contents, checked.dataset)
    planned_noise = samples.planned_noise()
    if planned_noise is None:
        return []
    rank, plan = planned_noise
    num_held, clip, batch = len(shards[rank]), settings.privacy.clip, settings.training.batch_size
    whose = f"rank {rank}, {num_held:,} samples"
    if settings.tells_once:
        of_counts, of_sums = (schedule := samples.schedule(rank)).noises(plan.noise)
        after = f", after σ {of_counts:.3g} in counts" if schedule.counts_share else ""
        rows = [("noise", f"σ {of_sums:.3g}, once, in a sum of all samples ({whose}){after}")]
    else:
        weights = num_parameters(models.discriminator())
        length = plan.noise * clip * sqrt(weights)
        rows = [
            (
                "noise",
                f"σ {plan.noise:.3g} in each of {plan.planned:,} steps, which draw a sample with "
                f"q {plan.rate:.2g} ({whose})",
            ),
            (
                "signal to noise",
                f"1 : {length / (batch * clip):.2g} at best: {batch} gradients of length "
                f"{clip:g} against noise of length {length:.3g} in {weights:,} weights",
            ),
        ]
    lines = [f"  {name:20} {value}" for name, value in rows]
    num_columns = len(checked.dataset.kind.columns())
    for heading, quality in expectations(settings, num_held, num_columns):
        lines += [heading, *(f"  {name:27} {fid:12} {note}" for name, fid, note in quality)]
    return ["noise of differential privacy", *lines]


def _shard_in_words(checked: Checked, worker: int) -> str:
    if not checked.settings.holds_data(worker):
        return f"rank {worker:<5}       no samples: it needs none"
    counts = _class_counts(checked, worker)
    present = [f"{label}:{count}" for label, count in enumerate(counts) if count]
    more = f" … {len(present)} classes" if len(present) > _MOST_SHOWN else ""
    return f"rank {worker:<5} {sum(counts):>7} samples   {' '.join(present[:_MOST_SHOWN])}{more}"


def _class_counts(checked: Checked, worker: int) -> list[int]:
    source, indices = checked.holdings[worker]
    return torch.bincount(source.labels[indices]).tolist()
