"""What one worker owns, and how batches are drawn from it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mdgan.data.partitioner import Partitioner


class Shard:
    """A view of some samples of a data set; nothing is copied.

    Attributes:
        indices: int64 [m], which samples.
    """

    def __init__(self, source: Partitioner, indices: Tensor, generator: torch.Generator) -> None:
        if len(indices) == 0:
            raise ValueError("a shard needs at least one sample")
        self.indices = indices
        self._source = source
        self._generator = generator
        self._order = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def pieces(self, size: int) -> Iterator[Tensor]:
        """Every sample once, in a fixed order; does not change what `next_batch` draws.

        Args:
            size: of a piece; the last may be smaller.

        Yields:
            float32 [size, C, H, W] in [−1, 1].
        """
        for indices in torch.split(self.indices, size):
            yield self._source.images(indices)

    def class_counts(self) -> list[int]:
        """The number of samples of each class, from class 0 to the highest here."""
        counts: list[int] = torch.bincount(self._source.labels[self.indices]).tolist()
        return counts

    def next_batch(self, batch_size: int) -> Tensor:
        """Draws without replacement until the shard is used up, then reshuffles and goes on.

        Args:
            batch_size: b; may exceed the shard, which then occurs more than once.

        Returns:
            float32 [b, C, H, W] in [−1, 1] (X^(r) of Algorithm 1, SAMPLES).
        """
        while len(self._order) < batch_size:
            reshuffled = torch.randperm(len(self.indices), generator=self._generator)
            self._order = torch.cat([self._order, reshuffled])
        chosen, self._order = self._order[:batch_size], self._order[batch_size:]
        return self._source.images(self.indices[chosen])
