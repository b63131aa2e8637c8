"""Models as one tensor: how the federated algorithms send and average them.

A model is cut into blocks as if it were a batch of samples, so that the codecs for feedback
(`codecs.py`) can encode it and scale each block by its own largest value. Weights, buffers and
whole numbers never share a block: they differ by orders of magnitude.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

BLOCK = 1024
"""The number of values in a block; zeros fill up the last block of each kind."""

_HALF = 1 << 24
"""float32 holds every whole number up to this one; a larger one is sent as two values."""


class ModelVector:
    """The parameters and buffers of some models: weights, then floating-point buffers, then others.

    Floating-point tensors are float32. Whole numbers n, such as BatchNorm's count of batches,
    become two values, ⌊n / 2²⁴⌋ and n mod 2²⁴, which survive averaging in float64.

    Args:
        models: all have float32 weights.

    Attributes:
        shape: of the vector, (number of blocks, BLOCK).
    """

    def __init__(self, *models: nn.Module) -> None:
        self._models = models
        self.shape = (sum(_num_blocks(tensors) for tensors in self._kinds()), BLOCK)

    @torch.no_grad()
    def read(self) -> Tensor:
        """The present values of all models.

        Returns:
            float32 `shape`, a copy, on the models' device.
        """
        return torch.cat([_blocks_of(tensors) for tensors in self._kinds() if tensors])

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Copies a vector into the models; values are rounded to what the tensors can hold.

        Args:
            vector: float32 or float64 `shape`.
        """
        first = 0
        for tensors in self._kinds():
            last = first + _num_blocks(tensors)
            _write(tensors, vector[first:last].reshape(-1))
            first = last

    def _kinds(self) -> Iterator[list[Tensor]]:
        """Weights, floating-point buffers, other buffers; the tensors themselves, not copies."""
        yield [p.detach() for model in self._models for p in model.parameters()]
        buffers = [b for model in self._models for b in _lasting_buffers(model)]
        yield [buffer for buffer in buffers if buffer.is_floating_point()]
        yield [buffer for buffer in buffers if not buffer.is_floating_point()]


def _lasting_buffers(model: nn.Module) -> list[Tensor]:
    weights = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [tensor for name, tensor in model.state_dict().items() if name not in weights]


def _num_values(tensor: Tensor) -> int:
    return tensor.numel() * (1 if tensor.is_floating_point() else 2)


def _num_blocks(tensors: list[Tensor]) -> int:
    return -(-sum(map(_num_values, tensors)) // BLOCK)


def _blocks_of(tensors: list[Tensor]) -> Tensor:
    flat = torch.cat([_as_floats(tensor) for tensor in tensors])
    missing = _num_blocks(tensors) * BLOCK - len(flat)
    return nn.functional.pad(flat, (0, missing)).view(-1, BLOCK)


def _as_floats(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    if tensor.is_floating_point():
        return flat.float()
    whole = flat.long()
    return torch.cat([whole.div(_HALF, rounding_mode="floor"), whole.remainder(_HALF)]).float()


def _write(tensors: list[Tensor], values: Tensor) -> None:
    begin = 0
    for tensor in tensors:
        part = values[begin : begin + _num_values(tensor)]
        begin += len(part)
        if tensor.is_floating_point():
            tensor.copy_(part.view_as(tensor))
        else:
            high, low = part.double().view(2, -1)
            tensor.copy_((high * _HALF + low).round().view_as(tensor))
