"""What one worker owns, and how batches are drawn from it."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mdgan.data.fetching import Fetcher
from mdgan.data.partitioner import NoSamples, Partitioner
from mdgan.data.readable import Readable
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import restore_generator


class Shard:
    """A view of some samples of a data set; nothing is copied.

    A sample that can no longer be read is replaced by the next one of the shard.

    Args:
        source: the data set.
        indices: int64 [m], which of its samples.
        generator: shuffles them.
        fetcher: reads samples before they are drawn; None to read them when they are.

    Attributes:
        indices: int64 [m], which samples.
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
        self._fetcher = fetcher
        self._fetched = None if fetcher is None else fetcher.fetch(self._samples)

    def __len__(self) -> int:
        return len(self.indices)

    def begun_anew(self, generator: torch.Generator) -> "Shard":
        """The same samples, in an order that another generator draws; nothing is read ahead."""
        return Shard(self._samples, torch.arange(len(self)), generator)

    def pieces(self, size: int) -> Iterator[Tensor]:
        """Every sample once, in a fixed order; does not change what `next_batch` draws.

        Args:
            size: the number of samples in a piece; the last piece may have fewer.

        Yields:
            float32 [size, C, H, W] in [−1, 1].
        """
        for first in range(0, len(self), size):
            yield self._samples.images(torch.arange(first, min(first + size, len(self))))

    def class_counts(self) -> list[int]:
        """The number of samples of each class, from class 0 to the highest here."""
        counts: list[int] = torch.bincount(self._samples.labels).tolist()
        return counts

    def next_batch(self, batch_size: int) -> Samples:
        """Draws without replacement until the shard is used up, then reshuffles and goes on.

        Args:
            batch_size: b; if it exceeds the shard, samples occur more than once.

        Returns:
            float32 [b, C, H, W] in [−1, 1] (X^(r) of Algorithm 1, SAMPLES), with their classes.
        """
        positions = self.next_positions(batch_size)
        if self._fetcher is None or self._fetched is None:
            return self._samples.samples(positions)
        return self._fetched.take(positions, self._coming(min(self._fetcher.buffer, len(self))))

    def next_positions(self, batch_size: int) -> Tensor:
        """Draws as `next_batch` does; returns the samples' positions in the shard, int64 [b]."""
        if len(self) == 0:
            raise IndexError("a batch of a worker that holds no samples")
        order = self._shuffled(batch_size, self._generator)
        chosen, self._order = order[:batch_size], order[batch_size:]
        return chosen

    def _coming(self, count: int) -> Tensor:
        """The positions that are drawn next, int64 [count]; the shard stays as it is."""
        if len(self._order) >= count:
            return self._order[:count]
        generator = torch.Generator()
        generator.set_state(self._generator.get_state())
        return self._shuffled(count, generator)[:count]

    def _shuffled(self, count: int, generator: torch.Generator) -> Tensor:
        """At least `count` positions in the order in which they are drawn from now on."""
        order = self._order
        while len(order) < count:
            order = torch.cat([order, torch.randperm(len(self.indices), generator=generator)])
        return order

    def state(self) -> dict[str, Tensor]:
        """What the next batches depend on, for `load_state`; contains no sample.

        Returns:
            `order`, int64: the positions in the shard of the samples that come next; `generator`,
            uint8: the state of the generator that shuffles; `size`, int64 []: the number of
            samples. The shard never writes to these tensors.
        """
        return {
            "order": self._order,
            "generator": self._generator.get_state(),
            "size": torch.tensor(len(self)),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Draws from now on what another shard of the same samples would have drawn next.

        Args:
            state: as the other's `state` returned it.

        Returns:
            Whether the sizes are equal; if not, nothing changed.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """
        if state.keys() != {"order", "generator", "size"}:
            raise KeyError(f"no state of a shard: {sorted(state)}")
        order, size = state["order"], state["size"]
        if order.dtype != torch.int64 or order.dim() != 1 or size.shape != ():
            raise RuntimeError("no state of a shard: its order or its size has another shape")
        if size.item() != len(self):
            return False
        if len(order) and not (order.min() >= 0 and order.max() < len(self)):
            raise RuntimeError(f"no state of a shard of {len(self)} samples: its order exceeds it")
        restore_generator(self._generator, state["generator"])
        self._order = order.cpu().clone()
        return True
