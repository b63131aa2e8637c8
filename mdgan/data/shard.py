"""Shards: the samples of one worker or client, and how it draws batches from them."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mdgan.data.fetching import Fetcher
from mdgan.data.partitioner import NoSamples, Partitioner
from mdgan.data.readable import Readable
from mdgan.gan.labels import Known, Samples
from mdgan.gan.randomness import generator_for, restore_generator

_AT_ONCE = 256


class Shard:
    """A view of some samples of a data set, without copies.

    If a sample cannot be read any more, the next one of the shard replaces it.
    """

    def __init__(
        self,
        source: Partitioner,
        indices: Tensor,
        generator: torch.Generator,
        fetcher: Fetcher | None = None,
    ) -> None:
        if len(indices) == 0 and not isinstance(source, NoSamples):
            raise ValueError("a shard needs at least one sample")
        self.indices = indices
        self._samples = Readable(source, indices)
        self._generator = generator
        self._order = torch.empty(0, dtype=torch.int64)
        self._shuffled_from = generator.get_state()
        self._fetcher = fetcher
        self._fetched = None if fetcher is None else fetcher.fetch(self._samples)

    def __len__(self) -> int:
        return len(self.indices)

    def begun_anew(self, generator: torch.Generator) -> "Shard":
        """A shard of the same samples, which another generator orders; it reads nothing ahead."""
        return Shard(self._samples, torch.arange(len(self)), generator)

    def pieces(self, size: int) -> Iterator[Tensor]:
        """Yields every sample once, in order, float32 [size, *shape]; draws no batch."""
        for first in range(0, len(self), size):
            yield self._samples.images(torch.arange(first, min(first + size, len(self))))

    def known(self) -> Iterator[Known]:
        """The bytes by which an account of privacy recognises each sample; see `Known`."""
        for first in range(0, len(self), _AT_ONCE):
            positions = torch.arange(first, min(first + _AT_ONCE, len(self)))
            yield from self._samples.known(positions)

    def of(self, positions: Tensor) -> "Shard":
        """A shard of the samples at some positions, int64 [k]; it reads nothing ahead."""
        return Shard(self._samples, positions, self._generator)

    def counts(self) -> Tensor:
        """The counts of its samples that all sites add up before training; see `Partitioner`."""
        return self._samples.counts(torch.arange(len(self)))

    def class_counts(self, least: int = 0) -> list[int]:
        """The number of samples of each class, from class 0 to the highest here, or to `least`."""
        return torch.bincount(self._samples.labels, minlength=least).tolist()

    def next_batch(self, batch_size: int) -> Samples:
        """Draws X^(r) without replacement until the shard is used up, then reshuffles."""
        positions = self.next_positions(batch_size)
        if self._fetcher is None or self._fetched is None:
            return self._samples.samples(positions)
        return self._fetched.take(positions, self._coming(min(self._fetcher.buffer, len(self))))

    def taken(self, positions: Tensor) -> Samples:
        """The readable samples at some positions; draws no batch, and reads nothing ahead."""
        return self._samples.available(positions)

    def next_positions(self, batch_size: int) -> Tensor:
        """Draws as `next_batch` does; returns the samples' positions in the shard, int64 [b]."""
        if len(self) == 0:
            raise IndexError("a batch of a worker that holds no samples")
        while len(self._order) < batch_size:
            self._shuffle()
        chosen, self._order = self._order[:batch_size], self._order[batch_size:]
        return chosen

    def _coming(self, count: int) -> Tensor:
        """The positions that will be drawn next, int64 [count]; the shard stays as it is."""
        if len(self._order) >= count:
            return self._order[:count]
        order, generator = self._order, torch.Generator()
        generator.set_state(self._generator.get_state())
        while len(order) < count:
            order = self._with_another(order, generator)
        return order[:count]

    def _with_another(self, order: Tensor, generator: torch.Generator) -> Tensor:
        """Appends all positions of the shard, shuffled, to an order."""
        return torch.cat([order, torch.randperm(len(self), generator=generator)])

    def state(self) -> dict[str, Tensor]:
        """The state on which the next batches depend; it contains no sample.

        Returns:
            `left`, int64 []: how many samples are left until the shard is shuffled again;
            `generator`, uint8: the generator's state before the last shuffling, or before the next
            one if no sample is left; `size`, int64 []: the number of samples. The shard never
            writes to these tensors.
        """
        num_left = len(self._order)
        state = self._shuffled_from if num_left else self._generator.get_state()
        return {"left": torch.tensor(num_left), "generator": state, "size": torch.tensor(len(self))}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues as the shard of a `state` would; False, and no change, at another size.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """
        if state.keys() != {"left", "generator", "size"}:
            raise KeyError(f"no state of a shard: {sorted(state)}")
        num_left, size = state["left"], state["size"]
        if num_left.dtype != torch.int64 or num_left.shape != () or size.shape != ():
            raise RuntimeError("no state of a shard: its order or its size has another shape")
        if size.item() != len(self):
            return False
        if not 0 <= num_left <= len(self):
            raise RuntimeError(f"no state of a shard of {len(self)} samples: its order exceeds it")
        restore_generator(self._generator, state["generator"])
        self._order = torch.empty(0, dtype=torch.int64)
        if num_left:
            self._shuffle()
            self._order = self._order[-int(num_left) :]
        return True

    def _shuffle(self) -> None:
        self._shuffled_from = self._generator.get_state()
        self._order = self._with_another(self._order, self._generator)


T = TypeVar("T")


class ClientShards(Mapping[int, Shard]):
    """The shards of clients 1..N, each made whenever it is looked up.

    Args:
        parts: for each client in turn, the samples that it owns, int64 [m].
    """

    def __init__(self, source: Partitioner, parts: Sequence[Tensor], seed: int) -> None:
        self._source = source
        self._parts = parts
        self._seed = seed
        self._findings: list[Any] = []

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, len(self._parts) + 1))

    def __getitem__(self, client: int) -> Shard:
        return self.begun_in(client)

    def begun_in(self, client: int, *iteration: int) -> Shard:
        """A client's shard, whose order depends on the last iteration of its round, if any."""
        if not 1 <= client <= len(self._parts):
            raise KeyError(client)
        generator = generator_for(self._seed, "shard", client, *iteration)
        return Shard(self._source, self._parts[client - 1], generator)

    def read_once(self, read: Callable[..., T]) -> T:
        """Calls a function with all shards once; later calls, and forks, get the same result."""
        if not self._findings:
            self._findings.append(read(*self.values()))
        result: T = self._findings[0]
        return result

    def class_counts(self) -> dict[int, list[int]]:
        """The number of samples of each class, by client."""
        return {n: self._source.class_counts(part) for n, part in enumerate(self._parts, start=1)}

    def described_by(self, rank: int, num_ranks: int) -> tuple[Partitioner, Tensor]:
        """The data set, and the samples of which one of several ranks computes statistics.

        All ranks together cover all samples; ranks above `num_ranks` repeat those of lower ones.
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
