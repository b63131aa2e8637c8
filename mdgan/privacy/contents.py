"""Digests by which a privacy account recognises samples, and which samples form one unit.

Samples of equal content are one unit, such as the rows of a person or copies of a picture. Noise
hides a unit as a whole, however many samples it has.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Protocol

import torch
from torch import Tensor

from mdgan.errors import BadInput, reason_of
from mdgan.gan.labels import Known

_FIRST = 8  # samples that are read twice, to find a data set that changes them


class HasContents(Protocol):
    """Samples whose contents can be read."""

    def known(self) -> Iterable[Known]:
        """The content and names of each sample."""


@dataclass(frozen=True)
class Contents:
    """SHA-256 digests of the fields of `Known` of some samples, sorted and without repeats.

    Attributes:
        rows, aliases, given: other names that earlier runs may know samples by; pairs of the
            digest of a name and the digest of its unit.
    """

    digests: tuple[bytes, ...]  # of the contents of all units
    rows: tuple[tuple[bytes, bytes], ...] = ()
    aliases: tuple[tuple[bytes, bytes], ...] = ()
    before: tuple[bytes, ...] = ()  # of the names in ledgers of version 2
    # Of the files that contain the samples, each with the digest of one unit in it.
    sources: tuple[tuple[bytes, bytes], ...] = ()
    given: tuple[tuple[bytes, bytes], ...] = ()
    # The number of each sample's unit, int64 [n], in the order of the units' first samples; None if
    # each sample is a unit.
    unit_of_sample: Tensor | None = field(default=None, compare=False)

    @classmethod
    def of(cls, *shards: HasContents) -> "Contents":
        """Reads all samples of some shards, and the first ones twice."""
        units: dict[bytes, int] = {}
        rows, aliases = set[tuple[bytes, bytes]](), set[tuple[bytes, bytes]]()
        before, sources = set[bytes](), dict[bytes, bytes]()
        given = set[tuple[bytes, bytes]]()
        numbers: list[int] = []
        try:
            again = list(islice(_known(shards), _FIRST))
            for place, known in enumerate(_known(shards)):
                if place < _FIRST and known != again[place]:
                    raise BadInput(
                        "differential privacy",
                        "the data set gives another picture each time that the same sample is "
                        "read, so what it has spent cannot be told",
                        "let its Partitioner define `contents`",
                    )
                unit = _digest(known.content)
                numbers.append(units.setdefault(unit, len(units)))
                if known.row:
                    rows.add((_digest(known.row), unit))
                    aliases.add((_digest(known.alias), unit))
                if known.before:
                    before.add(_digest(known.before))
                if known.source:
                    sources.setdefault(_digest(known.source), unit)
                if known.given:
                    given.add((_digest(known.given), unit))
        except OSError as error:
            why = f"a sample cannot be read to find out what it has spent ({reason_of(error)})"
            raise BadInput("differential privacy", why, "repair or remove it") from error
        unit_of_sample = torch.tensor(numbers)
        parts = (units, rows, aliases, before, sources.items(), given)
        return cls._in_order(*parts, of=unit_of_sample)

    @classmethod
    def _in_order(cls, *several: Iterable[Any], of: Tensor | None = None) -> "Contents":
        digests, *others = (tuple(sorted(set(part))) for part in several)
        rows, aliases, before, sources, given = others
        return cls(digests, rows, aliases, before, sources, given, of)

    @classmethod
    def of_name(cls, name: str) -> "Contents":
        """Contents with a name alone, for samples that this machine cannot read."""
        return cls((_digest(name.encode()),))

    @classmethod
    def union(cls, several: Iterable["Contents"]) -> "Contents":
        """The digests of several contents together, without `unit_of_sample`."""
        parts = list(several)
        names = ("digests", "rows", "aliases", "before", "sources", "given")
        return cls._in_order(*(chain(*(getattr(part, name) for part in parts)) for name in names))

    def as_files(self) -> "Contents":
        """The digests of the samples' files as contents, to look the files up in a ledger."""
        return Contents(tuple(sorted({file for file, _ in self.sources})))

    @property
    def num_repeats(self) -> int:
        """How many samples are not the first of their unit."""
        numbers = self.unit_of_sample
        return 0 if numbers is None else Units(numbers).num_repeats

    def units(self, num_samples: int) -> "Units":
        """The units of these samples."""
        numbers = self.unit_of_sample
        return Units(torch.arange(num_samples) if numbers is None else numbers)


class Units:
    """The unit of each sample of a shard, as numbers from 0 on, int64 [n]."""

    def __init__(self, unit_of_sample: Tensor) -> None:
        self.unit_of_sample = unit_of_sample
        self._places = unit_of_sample.argsort(stable=True)
        self._sizes = torch.bincount(unit_of_sample)
        self._first = self._sizes.cumsum(0) - self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def num_repeats(self) -> int:
        """How many samples are not the first of their unit."""
        return len(self.unit_of_sample) - len(self)

    @property
    def first_samples(self) -> Tensor:
        """The position of the first sample of each unit, int64 [number of units], ascending."""
        return self._places[self._first].sort().values

    def drawn(self, units: Tensor, uniform: Tensor) -> Tensor:
        """Draws one sample of each of k units by `uniform` in ]0, 1]: positions, int64 [k]."""
        within = (uniform * self._sizes[units]).ceil().long() - 1
        return self._places[self._first[units] + within]

    @property
    def weights(self) -> Tensor:
        """The weight of each sample, float64 [n]; the samples of a unit have equal parts of 1."""
        return 1 / self._sizes[self.unit_of_sample].double()


def _known(shards: Iterable[HasContents]) -> Iterator[Known]:
    return chain.from_iterable(shard.known() for shard in shards)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
