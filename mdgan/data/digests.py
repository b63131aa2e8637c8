"""Digests of samples, by which one machine recognises them later, or in other data."""

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
    """Digests of samples, uint64 [k], which do not depend on their order and names.

    Args:
        key: a secret, without which digests reveal nothing; digests with a key include the class.
    """
    digests = [
        hashlib.blake2b(content + b"%d" % label * bool(key), digest_size=8, key=key).digest()
        for piece in torch.split(indices, _AT_ONCE)
        if len(piece)  # a reader may fail if it is asked for no samples
        for content, label in zip(
            source.quick_contents(piece), source.labels[piece].tolist(), strict=True
        )
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def num_common(some: Digests, others: Digests) -> int:
    """How many samples two sets share; a repeated one counts as often as in the set with fewer."""
    (values, counts), (other_values, other_counts) = (
        np.unique(digests, return_counts=True) for digests in (some, others)
    )
    _, places, other_places = np.intersect1d(values, other_values, True, return_indices=True)
    return int(np.minimum(counts[places], other_counts[other_places]).sum())


class Shared(NamedTuple):
    """How many of the held-out samples are training samples, too."""

    number: int
    num_held_out: int
    is_chance: bool  # whether there are none, or no more than equal each other by nature

    def __str__(self) -> str:
        which = "sample is" if self.num_held_out == 1 else "samples are"
        return f"{self.number:,} of {self.num_held_out:,} held-out {which} trained on, too"


def shared_samples(
    trained: Iterable[tuple[Partitioner, Tensor]], held_out: Partitioner, *, reads_all: bool = False
) -> Shared:
    """Compares held-out samples with the samples of training, by content.

    Rows of a table with few columns equal each other by nature. So held-out samples may equal those
    of a source as often as these equal each other, and 3 standard errors more; but they may not be
    all samples of a source. If each sample is a file, no sample may be shared.

    Args:
        reads_all: whether to decode all files, too, to find copies in other formats.
    """
    sources: dict[int, tuple[Partitioner, list[Tensor]]] = {}
    for source, indices in trained:
        sources.setdefault(id(source), (source, []))[1].append(indices)
    parts = [
        (source, torch.from_numpy(np.unique(torch.cat(pieces).numpy())))
        for source, pieces in sources.values()
    ]
    held = digests_of(held_out, torch.arange(len(held_out)))
    trained_digests = [digests_of(*part) for part in parts]
    is_shared = np.isin(held, np.concatenate([held[:0], *trained_digests]))
    if held_out.lies_in_files:  # `quick_contents` reads only the ends of files, which may be equal
        contents, read, places = set[bytes](), _whole, torch.from_numpy(np.flatnonzero(is_shared))
        if reads_all:
            read, places = _decoded, torch.arange(len(held))
        for (source, indices), digests in zip(parts, trained_digests, strict=True):
            alike = torch.from_numpy(np.isin(digests, held) | reads_all)
            contents.update(read(source, indices[alike]))
        number = sum(content in contents for content in read(held_out, places))
        return Shared(number, len(held), number == 0)
    number = int(is_shared.sum())
    share = 1 - prod(1 - _share_of_repeats(digests) for digests in trained_digests)
    variance = share * (1 - share) * (1 + len(held) / (1 + sum(map(len, trained_digests))))
    most = len(held) * share + _ERRORS * sqrt(len(held) * variance)
    is_source = any(len(part) == num_common(part, held) == len(held) for part in trained_digests)
    is_source &= len(np.unique(held)) >= _FEWEST_VALUES
    return Shared(number, len(held), number <= most and not is_source)


def _whole(source: Partitioner, indices: Tensor) -> Iterator[bytes]:
    """Digests of samples' whole files."""
    for index in indices:
        yield hashlib.sha256(*source.contents(index[None])).digest()


def _decoded(source: Partitioner, indices: Tensor) -> Iterator[bytes]:
    """Digests of samples as networks see them, whatever the format of their files."""
    for index in indices:
        yield hashlib.sha256(*Partitioner.contents(source, index[None])).digest()


def _share_of_repeats(digests: Digests) -> float:
    """The share of samples that equal another one; never 0 or 1, since more samples might."""
    _, counts = np.unique(digests, return_counts=True)
    return (int(counts[counts > 1].sum()) + 1) / (len(digests) + 2)
