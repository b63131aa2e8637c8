"""By what samples are known again on one machine: in the same data later, or in other data."""

import hashlib
from collections.abc import Iterable, Iterator
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.data.partitioner import Partitioner

Digests = NDArray[np.uint64]

_AT_ONCE = 64
_ERRORS = 3.0
_FEWEST_VALUES = 5


def digests_of(source: Partitioner, indices: Tensor, key: bytes = b"") -> Digests:
    """What tells samples from others, uint64 [k], whatever their order and names.

    Args:
        key: a secret, without which digests tell nothing; under one classes count, too.
    """
    digests = [
        hashlib.blake2b(content + b"%d" % label * bool(key), digest_size=8, key=key).digest()
        for some in torch.split(indices, _AT_ONCE)
        if len(some)  # a reader need not know how to read nothing
        for content, label in zip(
            source.quick_contents(some), source.labels[some].tolist(), strict=True
        )
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def num_common(some: Digests, others: Digests) -> int:
    """How many samples both have, each as often as the one that has it less often."""
    (values, counts), (other_values, other_counts) = (
        np.unique(each, return_counts=True) for each in (some, others)
    )
    _, here, there = np.intersect1d(values, other_values, True, return_indices=True)
    return int(np.minimum(counts[here], other_counts[there]).sum())


class Shared(NamedTuple):
    """How many of so many held-out samples were trained on, too."""

    number: int
    num_held_out: int
    is_chance: bool  # whether that is none, or samples that equal others by nature explain it

    def __str__(self) -> str:
        which = "sample is" if self.num_held_out == 1 else "samples are"
        return f"{self.number:,} of {self.num_held_out:,} held-out {which} trained on, too"


def shared_samples(
    trained: Iterable[tuple[Partitioner, Tensor]], held_out: Partitioner, *, reads_all: bool = False
) -> Shared:
    """Compares held-out samples with those that were trained on, by content.

    Rows of a table with few columns equal each other by nature. So held-out samples may equal those
    of a source as often as these equal each other, and 3 standard errors more; but they may not be
    all samples of a source. Of samples that lie in files of their own, none may be shared.

    Args:
        reads_all: whether files are read, too, so that their copies in other formats are known.
    """
    sources: dict[int, tuple[Partitioner, list[Tensor]]] = {}
    for source, indices in trained:
        sources.setdefault(id(source), (source, []))[1].append(indices)
    parts = [
        (source, torch.from_numpy(np.unique(torch.cat(each).numpy())))
        for source, each in sources.values()
    ]
    own = digests_of(held_out, torch.arange(len(held_out)))
    digests = [digests_of(*part) for part in parts]
    is_shared = np.isin(own, np.concatenate([own[:0], *digests]))
    if held_out.lies_in_files:  # the ends of two files may be alike
        known, tell, places = set[bytes](), _whole, torch.from_numpy(np.flatnonzero(is_shared))
        if reads_all:
            tell, places = _read, torch.arange(len(own))
        for (source, indices), each in zip(parts, digests, strict=True):
            alike = torch.from_numpy(np.isin(each, own) | reads_all)
            known.update(tell(source, indices[alike]))
        number = sum(one in known for one in tell(held_out, places))
        return Shared(number, len(own), number == 0)
    number = int(is_shared.sum())
    share = 1 - prod(1 - _share_of_repeats(each) for each in digests)
    variance = share * (1 - share) * (1 + len(own) / (1 + sum(map(len, digests))))
    most = len(own) * share + _ERRORS * sqrt(len(own) * variance)
    is_source = any(len(each) == num_common(each, own) == len(own) for each in digests)
    is_source &= len(np.unique(own)) >= _FEWEST_VALUES
    return Shared(number, len(own), number <= most and not is_source)


def _whole(source: Partitioner, indices: Tensor) -> Iterator[bytes]:
    """What tells files from others, each read wholly."""
    for index in indices:
        yield hashlib.sha256(*source.contents(index[None])).digest()


def _read(source: Partitioner, indices: Tensor) -> Iterator[bytes]:
    """What tells samples from others as networks see them, whatever their files are."""
    for index in indices:
        yield hashlib.sha256(*Partitioner.contents(source, index[None])).digest()


def _share_of_repeats(digests: Digests) -> float:
    """The share of samples that equal another one; never 0 or 1, as more might."""
    _, counts = np.unique(digests, return_counts=True)
    return (int(counts[counts > 1].sum()) + 1) / (len(digests) + 2)
