"""What one worker or client owns, and how batches are drawn from it."""

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
    """A view of some samples of a data set; nothing is copied.

    A sample that can no longer be read is replaced by the next one of the shard.
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
        """The same samples, in an order that another generator draws; nothing is read ahead."""
        return Shard(self._samples, torch.arange(len(self)), generator)

    def pieces(self, size: int) -> Iterator[Tensor]:
        """Every sample once, float32 [size, *shape], in order; `next_batch` goes on as before."""
        for first in range(0, len(self), size):
            yield self._samples.images(torch.arange(first, min(first + size, len(self))))

    def known(self) -> Iterator[Known]:
        """By what an account of privacy knows each sample; see `Partitioner`."""
        for first in range(0, len(self), _AT_ONCE):
            positions = torch.arange(first, min(first + _AT_ONCE, len(self)))
            yield from self._samples.known(positions)

    def of(self, positions: Tensor) -> "Shard":
        """Some of its samples, int64 [k], as a shard of their own; nothing is read ahead."""
        return Shard(self._samples, positions, self._generator)

    def counts(self) -> Tensor:
        """What its samples add to what all sites learn before training; see `Partitioner`."""
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
        """Those of some samples that can be read; draws nothing, and reads nothing ahead."""
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
        """The positions that are drawn next, int64 [count]; the shard stays as it is."""
        if len(self._order) >= count:
            return self._order[:count]
        order, generator = self._order, torch.Generator()
        generator.set_state(self._generator.get_state())
        while len(order) < count:
            order = self._with_another(order, generator)
        return order[:count]

    def _with_another(self, order: Tensor, generator: torch.Generator) -> Tensor:
        """Some positions, and after them all of the shard's, shuffled."""
        return torch.cat([order, torch.randperm(len(self), generator=generator)])

    def state(self) -> dict[str, Tensor]:
        """What the next batches depend on, for `load_state`; contains no sample.

        Returns:
            `left`, int64 []: how many samples come before the shard is shuffled again; `generator`,
            uint8: the state of the generator from which they were shuffled, or if none is left the
            one from which they will be; `size`, int64 []: the number of samples. The shard never
            writes to these tensors.
        """
        left = len(self._order)
        before = self._shuffled_from if left else self._generator.get_state()
        return {"left": torch.tensor(left), "generator": before, "size": torch.tensor(len(self))}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Draws what another shard of equal size would have drawn next; False at another size.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """
        if state.keys() != {"left", "generator", "size"}:
            raise KeyError(f"no state of a shard: {sorted(state)}")
        left, size = state["left"], state["size"]
        if left.dtype != torch.int64 or left.shape != () or size.shape != ():
            raise RuntimeError("no state of a shard: its order or its size has another shape")
        if size.item() != len(self):
            return False
        if not 0 <= left <= len(self):
            raise RuntimeError(f"no state of a shard of {len(self)} samples: its order exceeds it")
        restore_generator(self._generator, state["generator"])
        self._order = torch.empty(0, dtype=torch.int64)
        if left:
            self._shuffle()
            self._order = self._order[-int(left) :]
        return True

    def _shuffle(self) -> None:
        self._shuffled_from = self._generator.get_state()
        self._order = self._with_another(self._order, self._generator)


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
