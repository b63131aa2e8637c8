"""Describes a checked plan, for `--dry-run`."""

from dataclasses import asdict

import torch

from mdgan.data.dataset_file import num_parameters
from mdgan.families.algorithms import FEDERATED, num_participants
from mdgan.families.mdgan.algorithm import resolve_kappa
from mdgan.launch.prepare import Plan

_MOST_CLASSES = 12


def describe(plan: Plan) -> str:
    """Lists the settings, what follows from them, the models, and what each worker will hold.

    Returns:
        Lines without a last line break.
    """
    experiment, dataset = plan.experiment, plan.dataset
    generator, discriminator = dataset.generator(), dataset.discriminator()
    lines = ["settings"]
    for name, value in {**asdict(experiment), **asdict(plan.deployment)}.items():
        lines.append(f"  {name:20} {'-' if value is None else value}")
    workers = experiment.num_workers
    sharing = workers if experiment.algorithm == "mdgan" else 1  # the others generate for one D
    sizes = [len(indices) for _, indices in plan.holdings.values()]
    every = experiment.swap_every(sum(sizes) / len(sizes))
    lines += [
        "resolved",
        f"  {'dataset file':20} {dataset.path}",
        f"  {'sample shape':20} {' × '.join(map(str, dataset.shape))}, Z_DIM {dataset.z_dim}",
        f"  {'generator':20} {num_parameters(generator):,} parameters",
        f"  {'discriminator':20} {num_parameters(discriminator):,} parameters",
        f"  {'κ':20} {resolve_kappa(experiment.kappa, sharing)}",
    ]
    if experiment.algorithm in FEDERATED:
        share = num_participants(experiment.participation or 1.0, workers)
        length = experiment.round_length(sum(sizes) / len(sizes))
        lines.append(f"  {'a round':20} {length} iterations of {share} worker(s)")
    elif experiment.algorithm == "mdgan":
        lines.append(f"  {'swap':20} {f'every {every} iterations' if every else 'never'}")
    if experiment.algorithm != "standalone":
        processes = ["rank 0"] if plan.ranks.serves else []
        processes += ["rank " + _span(host) for host in plan.ranks.hosts]
        lines.append(f"  {'processes here':20} {', '.join(processes)}")
    lines.append("holds")
    lines += [f"  {_holding(plan, worker)}" for worker in plan.holdings]
    return "\n".join(lines)


def _holding(plan: Plan, worker: int) -> str:
    source, indices = plan.holdings[worker]
    counts = torch.bincount(source.labels[indices], minlength=int(source.labels.max()) + 1)
    present = [f"{label}:{count}" for label, count in enumerate(counts.tolist()) if count]
    more = f" … {len(present)} classes" if len(present) > _MOST_CLASSES else ""
    return f"rank {worker:<5} {len(indices):>7} samples   {' '.join(present[:_MOST_CLASSES])}{more}"


def _span(workers: tuple[int, ...]) -> str:
    return str(workers[0]) if len(workers) == 1 else f"{workers[0]}-{workers[-1]}"
