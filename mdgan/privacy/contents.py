"""What samples hold, so that an account can tell whether it has met them before."""

import hashlib
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple, Protocol

from mdgan.errors import BadInput, reason_of

_FIRST = 8
"""Samples that are looked at twice."""


class HasContents(Protocol):
    """Samples whose contents can be read."""

    def contents(self) -> Iterable[bytes]:
        """Of each sample, what tells it from others, whatever it is called and wherever it is."""


class Contents(NamedTuple):
    """What some samples hold: SHA-256 of each content once, in order; and how many repeat one."""

    digests: tuple[bytes, ...]
    num_repeats: int = 0

    @classmethod
    def of(cls, *shards: HasContents) -> "Contents":
        """Reads some shards' samples, each once."""
        try:
            found = _digests(shards)
            again = [d for d, _ in zip(_digests(shards), range(_FIRST), strict=False)]
            digests = list(found)
        except OSError as error:
            raise BadInput(
                "differential privacy: a sample cannot be read to find out what it has spent "
                f"({reason_of(error)}); repair or remove it"
            ) from error
        if digests[: len(again)] != again:
            raise BadInput(
                "differential privacy: the data set gives another picture each time that the same "
                "sample is read, so what it has spent cannot be told; let its Partitioner define "
                "`contents`"
            )
        distinct = set(digests)
        return cls(tuple(sorted(distinct)), len(digests) - len(distinct))

    @classmethod
    def of_name(cls, name: str) -> "Contents":
        """What has a name and no contents that could be read here."""
        return cls((hashlib.sha256(name.encode()).digest(),))

    @classmethod
    def union(cls, several: Iterable["Contents"]) -> "Contents":
        """All of several, each once."""
        return cls(tuple(sorted({digest for each in several for digest in each.digests})))


def _digests(shards: Iterable[HasContents]) -> Iterable[bytes]:
    contents = chain.from_iterable(shard.contents() for shard in shards)
    return (hashlib.sha256(content).digest() for content in contents)
