"""What a host tells of its real data: sums over features, a piece at a time, never a sample."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from mdgan import messages
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.messages import Message
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.packing import unpack
from mdgan.metrics.real_statistics import RealStatistics

_PIECE = 32


class Describer:
    """Adds up the statistics of all shards of one host, in steps short enough to fit into waiting.

    Args:
        shards: by worker.
        own_file: this machine's extractor file, for extractors that do not travel.
        device: where features are computed.
    """

    def __init__(
        self, shards: Mapping[int, Shard], own_file: Path | None, device: torch.device
    ) -> None:
        self._shards = shards
        self._own_file = own_file
        self._device = device
        self._steps: Iterator[dict[str, Tensor] | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is something left to do."""
        return self._steps is not None

    def begin(self, message: Message) -> None:
        """Starts anew with the network of an EXTRACTOR message."""
        self._steps = self._work(message)

    def step(self, iteration: int) -> Message | None:
        """Does one piece of the work.

        Args:
            iteration: i, for the message.

        Returns:
            The REAL message once all is done, or once it is clear that it cannot be done.
        """
        assert self._steps is not None
        try:
            done = next(self._steps)
        except BadInput as error:
            self._steps = None
            return messages.real(iteration, {}, str(error))
        if done is None:
            return None
        self._steps = None
        return messages.real(iteration, done)

    def _work(self, message: Message) -> Iterator[dict[str, Tensor] | None]:
        extractor = unpack(message.fields, message.tensors, self._own_file).to(self._device)
        yield None
        total = RealStatistics.empty(extractor)
        for worker, shard in self._shards.items():
            for position, piece in numbered_pieces(worker, shard):
                total.add(extractor(piece), position)
                yield None
        yield total.tensors()


def numbered_pieces(worker: int, shard: Shard) -> Iterator[tuple[int, Tensor]]:
    """All samples of a shard, float32 [n, C, H, W], each piece with its first one's position.

    Every worker counts positions from a number of its own. If all shards had equal positions and
    held one class each, both halves of the data would hold the same share of every class.
    """
    position = worker << 32
    for piece in shard.pieces(_PIECE):
        yield position, piece
        position += len(piece)


def describe_all(shards: Iterable[Shard], extractor: Extractor) -> RealStatistics:
    """The statistics of several shards together, all at once."""
    total = RealStatistics.empty(extractor)
    for number, shard in enumerate(shards, start=1):
        for position, piece in numbered_pieces(number, shard):
            total.add(extractor(piece), position)
    return total
