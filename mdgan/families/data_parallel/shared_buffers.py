"""Buffers of models, as the processes of one machine average them."""

from operator import is_

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.replica import WHOLE
from mdgan.gan.model_vector import HALF, places_of_buffers


class BuffersInOne:
    """The buffers of some models on the CPU, which become parts of two tensors.

    In small models these are much faster to read and to write. As in a `GradientVector`, a whole
    number n is averaged as ⌊n / 2²⁴⌋ and n mod 2²⁴, both divided by 2²⁴.

    Attributes:
        count: of the values that are averaged.
    """

    def __init__(self, *models: nn.Module) -> None:
        self._places = [place for model in models for place in places_of_buffers(model)]
        self._wholes: list[Tensor] = []
        self._parts: list[Tensor] = []
        floats, others = self._find()
        self.count = len(floats) + 2 * len(others)

    @torch.no_grad()
    def read(self, into: Tensor) -> None:
        """Puts the present values in place, float32 [count]."""
        floats, others = self._find()
        into[: len(floats)] = floats
        if len(others):
            into.numpy()[len(floats) :] = np.concatenate(np.divmod(others.numpy(), HALF)) / WHOLE

    @torch.no_grad()
    def write(self, values: Tensor) -> None:
        """Puts values in the models, float64 [count], rounded."""
        floats, others = self._find()
        floats.copy_(values[: len(floats)])
        if len(others):
            high, low = values.numpy()[len(floats) :].reshape(2, -1) * WHOLE
            others.numpy()[:] = np.rint(high * HALF + low)

    def _find(self) -> list[Tensor]:
        found: list[Tensor] = [module._buffers[name] for module, name in self._places]  # type: ignore[misc] # none is None: it is saved
        if not self._wholes or not all(map(is_, found, self._parts)):  # a model may replace one
            floats = [n for n, buffer in enumerate(found) if buffer.is_floating_point()]
            others = [n for n, buffer in enumerate(found) if not buffer.is_floating_point()]
            self._wholes = [_in_one(found, of_kind) for of_kind in (floats, others)]
            for (module, name), part in zip(self._places, found, strict=True):
                module._buffers[name] = part
            self._parts = found
        return self._wholes


def _in_one(tensors: list[Tensor], which: list[int]) -> Tensor:
    """Lays some of the tensors in one, and replaces them by its parts."""
    whole = torch.cat([tensors[n].reshape(-1) for n in which]) if which else torch.zeros(0)
    sizes = [tensors[n].numel() for n in which]
    for n, part in zip(which, torch.split(whole, sizes), strict=True):
        tensors[n] = part.view(tensors[n].shape)
    return whole
