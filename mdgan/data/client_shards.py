"""The shards of clients without a home, which every process that can read the data can make."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.gan.randomness import generator_for
from mdgan.privacy.contents import Contents


class ClientShards(Mapping[int, Shard]):
    """By client 1..N, its shard; each is made when it is asked for, and nothing is kept of it.

    Args:
        source: the data set.
        parts: for each client in turn, int64 [m], which samples it owns.
        seed: the run's seed.
    """

    def __init__(self, source: Partitioner, parts: Sequence[Tensor], seed: int) -> None:
        self._source = source
        self._parts = parts
        self._seed = seed

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, len(self._parts) + 1))

    def __getitem__(self, client: int) -> Shard:
        return self._made(client, client)

    def begun_in(self, client: int, iteration: int) -> Shard:
        """A client's shard whose order of samples is drawn anew.

        Args:
            client: its number.
            iteration: the last one of the round that the client trains in; it decides the order.
        """
        return self._made(client, client, iteration)

    @cached_property
    def contents(self) -> Contents:
        """What all samples of all clients hold; read once, and by no process forked after that.

        Raises:
            BadInput: one cannot be read.
        """
        return Contents.of(*self.values())

    def class_counts(self) -> dict[int, list[int]]:
        """By client, the number of samples of each class that the data have."""
        labels = self._source.labels
        num_classes = int(labels.max()) + 1
        return {
            client: torch.bincount(labels[part], minlength=num_classes).tolist()
            for client, part in enumerate(self._parts, start=1)
        }

    def described_by(self, rank: int, num_ranks: int) -> tuple[Partitioner, Tensor]:
        """The samples that one of several ranks describes for scores; all ranks together, each.

        Args:
            rank: from 1; a later one than the last describes what an earlier one does.
            num_ranks: how many share the work.

        Returns:
            The data set, and which of its samples, int64 [m].
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

    def _made(self, client: int, *stream: int) -> Shard:
        if not 1 <= client <= len(self._parts):
            raise KeyError(client)
        generator = generator_for(self._seed, "shard", *stream)
        return Shard(self._source, self._parts[client - 1], generator)
