"""By what an account of privacy knows samples again, and which of them count as one person.

Samples of equal content are one unit: the rows of a person, copies of a picture. Noise hides a unit
as a whole, whatever the number of its samples.
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

_FIRST = 8  # samples that are looked at twice


class HasContents(Protocol):
    """Samples whose contents can be read."""

    def known(self) -> Iterable[Known]:
        """What each sample is known by."""


@dataclass(frozen=True)
class Contents:
    """What some samples hold, as SHA-256, each once, in order; see `Known`.

    Attributes:
        rows, aliases, given: of what else other runs may know samples by, each with that of the
            unit.
    """

    digests: tuple[bytes, ...]  # of the contents of all units
    rows: tuple[tuple[bytes, bytes], ...] = ()
    aliases: tuple[tuple[bytes, bytes], ...] = ()
    before: tuple[bytes, ...] = ()  # of what ledgers of version 2 know them by
    # Of the files that they lie in, each with that of one unit.
    sources: tuple[tuple[bytes, bytes], ...] = ()
    given: tuple[tuple[bytes, bytes], ...] = ()
    # Of each sample the number of its unit, int64 [n], in the order of the first samples of units;
    # None where each sample is a unit.
    unit_of_sample: Tensor | None = field(default=None, compare=False)

    @classmethod
    def of(cls, *shards: HasContents) -> "Contents":
        """Reads some shards' samples, each once."""
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
                own = _digest(known.content)
                numbers.append(units.setdefault(own, len(units)))
                if known.row:
                    rows.add((_digest(known.row), own))
                    aliases.add((_digest(known.alias), own))
                if known.before:
                    before.add(_digest(known.before))
                if known.source:
                    sources.setdefault(_digest(known.source), own)
                if known.given:
                    given.add((_digest(known.given), own))
        except OSError as error:
            why = f"a sample cannot be read to find out what it has spent ({reason_of(error)})"
            raise BadInput("differential privacy", why, "repair or remove it") from error
        unit_of_sample = torch.tensor(numbers)
        parts = (units, rows, aliases, before, sources.items(), given)
        return cls._in_order(*parts, of=unit_of_sample)

    @classmethod
    def _in_order(cls, *several: Iterable[Any], of: Tensor | None = None) -> "Contents":
        digests, *others = (tuple(sorted(set(each))) for each in several)
        rows, aliases, before, sources, given = others
        return cls(digests, rows, aliases, before, sources, given, of)

    @classmethod
    def of_name(cls, name: str) -> "Contents":
        """What has a name and no contents that could be read here."""
        return cls((_digest(name.encode()),))

    @classmethod
    def union(cls, several: Iterable["Contents"]) -> "Contents":
        """All of several, each once; nothing is said of single samples."""
        parts = list(several)
        names = ("digests", "rows", "aliases", "before", "sources", "given")
        return cls._in_order(*(chain(*(getattr(each, name) for each in parts)) for name in names))

    def as_files(self) -> "Contents":
        """The files that they lie in, as what an account may have met before."""
        return Contents(tuple(sorted({file for file, _ in self.sources})))

    @property
    def num_repeats(self) -> int:
        """How many samples are of a unit that came before."""
        each = self.unit_of_sample
        return 0 if each is None else Units(each).num_repeats

    def units(self, num_samples: int) -> "Units":
        """Which of so many samples belong to which unit."""
        each = self.unit_of_sample
        return Units(torch.arange(num_samples) if each is None else each)


class Units:
    """Which samples of a shard belong to which unit, by numbers from 0 on, int64 [n]."""

    def __init__(self, unit_of_sample: Tensor) -> None:
        self.unit_of_sample = unit_of_sample
        self._places = unit_of_sample.argsort(stable=True)
        self._sizes = torch.bincount(unit_of_sample)
        self._first = self._sizes.cumsum(0) - self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def num_repeats(self) -> int:
        """How many samples are of a unit that came before."""
        return len(self.unit_of_sample) - len(self)

    @property
    def first_samples(self) -> Tensor:
        """The position of the first sample of each unit, int64 [number of units], rising."""
        return self._places[self._first].sort().values

    def drawn(self, units: Tensor, uniform: Tensor) -> Tensor:
        """The place of one sample of each of some units, int64 [k], by `uniform` in ]0, 1]."""
        within = (uniform * self._sizes[units]).ceil().long() - 1
        return self._places[self._first[units] + within]

    @property
    def weights(self) -> Tensor:
        """The weight of each sample, float64 [n]: those of a unit share 1."""
        return 1 / self._sizes[self.unit_of_sample].double()


def _known(shards: Iterable[HasContents]) -> Iterator[Known]:
    return chain.from_iterable(shard.known() for shard in shards)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
