"""Models as one tensor: how the federated algorithms send and average them.

A model is cut into blocks as if it were a batch of samples, so that the codecs for feedback
(`codecs.py`) write it, too, and scale each block by its own largest value.
"""

import torch
from torch import Tensor, nn

BLOCK = 1024
"""Values in a block; the last block ends with zeros."""

_HALF = 1 << 24
"""float32 holds every whole number up to it, so a larger one travels as two."""


class ModelVector:
    """The parameters and buffers of some models, in the order of their state dicts.

    Floating-point tensors are float32. Whole numbers n, such as BatchNorm's count of batches,
    become two values, ⌊n / 2²⁴⌋ and n mod 2²⁴, which survive averaging in float64.

    Args:
        models: all have float32 weights.

    Attributes:
        shape: of the vector, (number of blocks, BLOCK).
    """

    def __init__(self, *models: nn.Module) -> None:
        self._models = models
        sizes = (t.numel() * (1 if t.is_floating_point() else 2) for t in self._tensors())
        self._size = sum(sizes)
        self.shape = (-(-self._size // BLOCK), BLOCK)

    @torch.no_grad()
    def read(self) -> Tensor:
        """The models as they are.

        Returns:
            float32 `shape`, a copy, on the models' device.
        """
        flat = torch.cat([_as_floats(tensor) for tensor in self._tensors()])
        return nn.functional.pad(flat, (0, self.shape[0] * BLOCK - self._size)).view(self.shape)

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Copies a vector in; a mean of several is rounded to the nearest value here.

        Args:
            vector: float32 or float64 `shape`.
        """
        flat, begin = vector.reshape(-1), 0
        for tensor in self._tensors():
            size = tensor.numel() * (1 if tensor.is_floating_point() else 2)
            part = flat[begin : begin + size]
            begin += size
            if tensor.is_floating_point():
                tensor.copy_(part.view_as(tensor))
            else:
                high, low = part.double().view(2, -1)
                tensor.copy_((high * _HALF + low).round().view_as(tensor))

    def _tensors(self) -> list[Tensor]:
        """Themselves, not copies."""
        return [tensor for model in self._models for tensor in model.state_dict().values()]


def _as_floats(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    if tensor.is_floating_point():
        return flat.float()
    whole = flat.long()
    return torch.cat([whole.div(_HALF, rounding_mode="floor"), whole.remainder(_HALF)]).float()
