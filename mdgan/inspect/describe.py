"""A checked run in words, for `--dry-run`."""

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

_MOST_CLASSES = 12


def describe(checked: Checked) -> str:
    """What would be trained, what each worker will hold, the models, and all settings."""
    dataset, models = checked.dataset, checked.models
    clients = checked.clients
    held = (_counts(checked, worker) for worker in checked.holdings)
    counts = list(held if clients is None else clients.class_counts().values())
    if checked.settings.privacy.keeps_classes:  # then nothing follows from them
        counts = [[sum(each)] for each in counts]
    resolved = [
        ("dataset file", str(dataset.path)),
        ("sample shape", f"{' × '.join(map(str, dataset.shape))}, Z_DIM {models.z_dim}"),
        ("generator", f"{num_parameters(models.generator()):,} parameters"),
        ("discriminator", f"{num_parameters(models.discriminator()):,} parameters"),
        *checked.builder.describe(_planned(checked, counts)),
    ]
    if checked.algorithm.has_hosts:
        processes = ["rank 0"] if checked.ranks.serves else []
        processes += [f"rank {ends_of(host)}" for host in checked.ranks.hosts]
        resolved.append(("processes here", ", ".join(processes)))
    settings = {**checked.config, "out": checked.launch.out}
    lines = [_in_short(checked), "holds"]
    if clients is None:
        lines += [f"  {_holding(checked, worker)}" for worker in checked.holdings]
    else:
        sizes = sorted(map(sum, counts))
        lines.append(
            f"  {len(sizes):,} clients, trained wherever there is room: {sizes[0]:,} samples at "
            f"least, {sizes[len(sizes) // 2]:,} in the middle, {sizes[-1]:,} at most"
        )
    lines += [*_under_privacy(checked), "resolved"]
    lines += [f"  {name:20} {value}" for name, value in resolved]
    lines.append("settings")
    lines += [f"  {name:20} {'-' if value is None else value}" for name, value in settings.items()]
    return "\n".join(lines)


def _planned(checked: Checked, counts: ClassCounts) -> PlannedRun[Any]:
    """What is known of the run.

    A host elsewhere is taken to carry as many workers as `--workers-per-host` says here, or one.
    """
    hosts, given = [*checked.ranks.hosts], checked.launch.workers_per_host
    size = given if isinstance(given, int) else 1
    here, workers = checked.ranks.workers(), range(1, checked.settings.num_workers + 1)
    away = [worker for worker in workers if worker not in here]
    hosts += [tuple(away[first : first + size]) for first in range(0, len(away), size)]
    least = least_parties(checked.launch.links.require)
    return PlannedRun(checked.settings, checked.models, counts, hosts, least)


def _in_short(checked: Checked) -> str:
    """What a user wants to know first, in a line."""
    settings = checked.settings
    who = f" with {settings.num_workers:,} worker(s)" if checked.algorithm.has_hosts else ""
    if settings.num_placed is not None:
        who = f" with {settings.num_placed:,} clients"
    how_long = "; mdgan plan with these flags says how long" if checked.algorithm.has_hosts else ""
    return (
        f"can run: {settings.algorithm} trains {count(settings.training.iterations, 'iteration')} "
        f"on {checked.dataset.name}{who} and batches of {settings.training.batch_size}{how_long}"
    )


def _under_privacy(checked: Checked) -> list[str]:
    """How much noise there is beside what is learnt, and what would be better; spends nothing."""
    settings, models = checked.settings, checked.models
    shards = {rank: checked.shard(rank) for rank in checked.holdings}
    samples = HeldSamples(settings, shards, checked.contents, checked.dataset)
    found = samples.planned_noise()
    if found is None:
        return []
    rank, plan = found
    held, clip, batch = len(shards[rank]), settings.privacy.clip, settings.training.batch_size
    whose = f"rank {rank}, {held:,} samples"
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
    for heading, quality in expectations(settings, held, len(checked.dataset.kind.columns())):
        lines += [heading, *(f"  {name:27} {fid:12} {note}" for name, fid, note in quality)]
    return ["noise of differential privacy", *lines]


def _holding(checked: Checked, worker: int) -> str:
    if not checked.settings.holds_data(worker):
        return f"rank {worker:<5}       no samples: it needs none"
    counts = _counts(checked, worker)
    present = [f"{label}:{count}" for label, count in enumerate(counts) if count]
    more = f" … {len(present)} classes" if len(present) > _MOST_CLASSES else ""
    return f"rank {worker:<5} {sum(counts):>7} samples   {' '.join(present[:_MOST_CLASSES])}{more}"


def _counts(checked: Checked, worker: int) -> list[int]:
    source, indices = checked.holdings[worker]
    return torch.bincount(source.labels[indices]).tolist()
