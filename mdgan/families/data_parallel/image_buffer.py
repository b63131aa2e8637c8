"""The image buffer of asynchronous updates (ParaGAN, section 5.1): what an older generator made."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mdgan.gan.labels import Samples

_LABELS = "labels."


def deal(images: Samples, sizes: Mapping[int, int]) -> dict[int, Samples]:
    """Deals generated images out to workers, like cards: each gets as many as `sizes` says.

    After the last image comes the first again; if there are too many, the last ones are left out.
    """
    dealt, first = {}, 0
    for worker, size in sizes.items():
        places = torch.arange(first, first + size) % len(images)
        dealt[worker] = images[places.tolist()]
        first += size
    return dealt


class ImageBuffer:
    """The newest generated batches, of one worker or of several together, without their graphs."""

    def __init__(self, shape: Sequence[int], num_classes: int | None) -> None:
        self._shape = torch.Size(shape)
        self._num_classes = num_classes
        self._batches: list[Samples] = []

    def exchange(self, made: Samples, lag: int) -> Samples:
        """Takes in what G has made, and gives the batch of `lag` iterations ago, or the oldest.

        Batches of another size than `made` are dropped: they are of a time with other workers.
        """
        self._batches = [batch for batch in self._batches if len(batch) == len(made)]
        oldest = [*self._batches, made][-lag - 1 :][0]
        self.take_in(made, lag)
        return oldest

    def oldest(self) -> Samples | None:
        """The batch that was taken in first, of those that are kept; None if there is none."""
        return self._batches[0] if self._batches else None

    def take_in(self, made: Samples, lag: int) -> None:
        """Takes in the batch of an iteration, of any size, and keeps those of the last `lag`."""
        self._batches = [*self._batches, made][-lag:] if lag else []

    def state(self) -> dict[str, Tensor]:
        """A copy: `0`, `1`, … are the images, the oldest first, and `labels.0`, … their classes."""
        state = {}
        for number, batch in enumerate(self._batches):
            state[str(number)] = batch.images.clone()
            if batch.labels is not None:
                state[f"{_LABELS}{number}"] = batch.labels.clone()
        return state

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Continues on a device where `state` was taken, or raises `KeyError` or `RuntimeError`."""
        labelled = self._num_classes is not None
        numbers = [str(number) for number in range(len(state) // (2 if labelled else 1))]
        expected = {*numbers, *(f"{_LABELS}{number}" for number in numbers if labelled)}
        if state.keys() != expected:
            raise KeyError(f"no batches of generated samples: {sorted(state)}")
        batches = [Samples(state[number], state.get(f"{_LABELS}{number}")) for number in numbers]
        for batch in batches:
            self._check(batch)
        self._batches = [batch.to(device) for batch in batches]

    def _check(self, batch: Samples) -> None:
        images, labels = batch.images, batch.labels
        if images.shape[1:] != self._shape or images.dtype != torch.float32:
            raise RuntimeError(f"no generated images: {images.dtype} {list(images.shape)}")
        if labels is None:
            return
        fits = labels.dtype == torch.int64 and labels.shape == images.shape[:1]
        if not fits or not bool(((labels >= 0) & (labels < (self._num_classes or 0))).all()):
            raise RuntimeError(f"no classes of generated images: {labels.dtype}")
