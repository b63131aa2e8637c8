"""Divides data over workers by the schemes of `--partition`, from labels and seed alone.

`iid`, `sorted`, `dirichlet` and `shards` give every sample to exactly one worker, as does `classes`
if N·K covers all classes. `fegan` draws each worker's samples by itself, ever more from worker to
worker, so that several workers may hold the same sample.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.data.settings import PartitionScheme
from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.spelling import flag

Indices = NDArray[np.int64]
Parts = list[Indices]

_DIRICHLET_ATTEMPTS = 100
_MOST_PIECES = 1_000_000


def partition(
    labels: Tensor,
    scheme: PartitionScheme,
    num_workers: int,
    seed: int,
    groups: Tensor | None = None,
) -> list[Tensor]:
    """Divides a data set with these labels, int64 [n], over workers, by any scheme but `none`.

    Args:
        groups: int64 [n]; samples of one group, such as a patient, go to the same worker, and the
            label of a group is that of its first sample. None without groups.
    """
    if groups is not None:
        return _partition_groups(labels, scheme, num_workers, seed=seed, groups=groups)
    divide = SCHEMES[scheme.name]
    if len(labels) < num_workers and not lets_workers_share(scheme):
        raise BadInput(
            f"{num_workers} workers but only {len(labels):,} samples",
            f"use fewer workers or more data, or {flag('partition', 'fegan:C,S')}, where several "
            "may hold the same sample",
        )
    random = np.random.default_rng(derive_seed(seed, "partition", scheme.text, num_workers))
    parts = divide(labels.numpy(), num_workers, random, *scheme.numbers)
    for worker, part in enumerate(parts, start=1):
        if len(part) == 0:
            raise BadInput(
                flag("partition", scheme),
                f"worker {worker} of {num_workers} would hold no sample",
                f"use fewer workers, a larger number in the scheme, or another {flag('seed')}",
            )
    return [torch.from_numpy(np.sort(part)) for part in parts]


def _partition_groups(
    labels: Tensor, scheme: PartitionScheme, num_workers: int, seed: int, groups: Tensor
) -> list[Tensor]:
    names, first = np.unique(groups.numpy(), return_index=True)
    order = np.argsort(first)  # by their first samples, so that names do not matter
    of_groups = labels[torch.from_numpy(first[order])]
    if len(of_groups) < num_workers and not lets_workers_share(scheme):
        few = f"{len(of_groups):,} person(s), to whom all {len(labels):,} samples belong"
        raise BadInput(f"{num_workers} workers but only {few}", "use fewer workers or more data")
    parts = partition(of_groups, scheme, num_workers, seed=seed)
    return [torch.from_numpy(np.flatnonzero(np.isin(groups, names[order][part]))) for part in parts]


def _iid(labels: Indices, num_workers: int, random: np.random.Generator) -> Parts:
    """A random split into N parts of equal size (± 1)."""
    return np.array_split(random.permutation(len(labels)), num_workers)


def _sorted(labels: Indices, num_workers: int, random: np.random.Generator) -> Parts:
    """Sorted by class, then cut into N consecutive parts of equal size (± 1)."""
    return np.array_split(_by_class(labels, random), num_workers)


def _shards(labels: Indices, num_workers: int, random: np.random.Generator, k: float) -> Parts:
    """Sorted by class, cut into N·K pieces, K random pieces a worker (McMahan et al. 2017, §3)."""
    num_pieces = num_workers * int(k)
    if num_pieces > _MOST_PIECES:
        raise BadInput(
            flag("partition", f"shards:{int(k)}"), f"makes {num_pieces} pieces", "use fewer"
        )
    pieces = np.array_split(_by_class(labels, random), num_pieces)
    order = random.permutation(len(pieces)).reshape(num_workers, int(k))
    return [np.concatenate([pieces[piece] for piece in row]) for row in order]


def _dirichlet(
    labels: Indices, num_workers: int, random: np.random.Generator, alpha: float
) -> Parts:
    """Every class divided in proportions drawn from Dir(α) (Yurochkin et al. 2019, section 4)."""
    parts: Parts = []
    for _ in range(_DIRICHLET_ATTEMPTS):
        pieces_of: list[Parts] = [[] for _ in range(num_workers)]
        for label in np.unique(labels):
            members = random.permutation(np.flatnonzero(labels == label))
            shares = random.dirichlet(np.full(num_workers, alpha))
            if not np.isfinite(shares).all():  # α so small that every share underflows
                shares = np.eye(num_workers)[random.integers(num_workers)]
            cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            for worker, piece in enumerate(np.split(members, cuts)):
                pieces_of[worker].append(piece)
        parts = [np.concatenate(pieces) for pieces in pieces_of]
        if all(len(part) for part in parts):
            break
    return parts


def _classes(labels: Indices, num_workers: int, random: np.random.Generator, k: float) -> Parts:
    """K classes a worker, dealt out evenly; the workers that hold a class share its samples."""
    present = np.unique(labels)
    per_worker = int(k)
    if per_worker > len(present):
        raise BadInput(
            flag("partition", f"classes:{per_worker}"), f"the data has only {len(present)} classes"
        )
    dealt = np.resize(random.permutation(present), num_workers * per_worker)
    hands = dealt.reshape(num_workers, per_worker)
    parts: list[Parts] = [[] for _ in range(num_workers)]
    for label in present:
        holders = [worker for worker in range(num_workers) if label in hands[worker]]
        members = random.permutation(np.flatnonzero(labels == label))
        pieces = np.array_split(members, max(1, len(holders)))
        for holder, piece in zip(holders, pieces, strict=False):
            parts[holder].append(piece)
    return [np.concatenate(pieces) for pieces in parts]


def _overlapping(
    labels: Indices, num_workers: int, random: np.random.Generator, classes: float, samples: float
) -> Parts:
    """Unequal and overlapping, as in FeGAN's experiments (Guerraoui et al. 2020, section 4)."""
    present = np.unique(labels)
    of_class = {label: np.flatnonzero(labels == label) for label in present}
    parts: Parts = []
    for i in range(1, num_workers + 1):
        most_classes = max(1, int(classes * i / num_workers))
        most_samples = max(1, int(min(i**2, samples * i / num_workers)))
        num_classes = min(int(random.integers(1, most_classes + 1)), len(present))
        pieces: Parts = []
        for label in random.choice(present, num_classes, replace=False):
            members = of_class[label]
            num_samples = min(int(random.integers(1, most_samples + 1)), len(members))
            pieces.append(random.choice(members, num_samples, replace=False))
        parts.append(np.concatenate(pieces))
    return parts


def _by_class(labels: Indices, random: np.random.Generator) -> Indices:
    """All indices sorted by class, in random order within a class."""
    shuffled = random.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def lets_workers_share(scheme: PartitionScheme) -> bool:
    """Whether several workers may hold the same sample."""
    return SCHEMES.get(scheme.name) is _overlapping


SCHEMES: dict[str, Callable[..., Parts]] = {
    "iid": _iid,
    "sorted": _sorted,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "classes": _classes,
    "fegan": _overlapping,
}
