"""The shards of placed clients, which every process that can read the data can make."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.gan.randomness import generator_for

T = TypeVar("T")


class ClientShards(Mapping[int, Shard]):
    """By client 1..N, its shard; each is made when it is asked for, and nothing is kept of it.

    The parts are, for each client in turn, which samples it owns, int64 [m].
    """

    def __init__(self, source: Partitioner, parts: Sequence[Tensor], seed: int) -> None:
        self._source = source
        self._parts = parts
        self._seed = seed
        self._found: list[Any] = []

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, len(self._parts) + 1))

    def __getitem__(self, client: int) -> Shard:
        return self.begun_in(client)

    def begun_in(self, client: int, *iteration: int) -> Shard:
        """A client's shard, in an order that the last iteration of its round decides, if any."""
        if not 1 <= client <= len(self._parts):
            raise KeyError(client)
        generator = generator_for(self._seed, "shard", client, *iteration)
        return Shard(self._source, self._parts[client - 1], generator)

    def read_once(self, read: Callable[..., T]) -> T:
        """What a function finds in all shards; later calls, and processes forked, do not read."""
        if not self._found:
            self._found.append(read(*self.values()))
        found: T = self._found[0]
        return found

    def class_counts(self) -> dict[int, list[int]]:
        """By client, the number of samples of each class that the data have."""
        return {n: self._source.class_counts(part) for n, part in enumerate(self._parts, start=1)}

    def described_by(self, rank: int, num_ranks: int) -> tuple[Partitioner, Tensor]:
        """The data set, and which of its samples one of several ranks describes for scores.

        All ranks together describe each; a later one than the last does what an earlier one does.
        """
        first = (rank - 1) % num_ranks
        return self._source, torch.arange(first, len(self._source), num_ranks)

    def digest(self) -> str:
        """SHA-256 of the classes and of the samples that each client owns."""
        digest = hashlib.sha256(self._source.labels.numpy().tobytes())
        for part in self._parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part.numpy().tobytes())
        return digest.hexdigest()
