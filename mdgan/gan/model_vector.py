"""Models and gradients as one tensor, as algorithms send and average them.

The tensor has blocks as if it were a batch of samples, so that the codecs for feedback
(`codecs.py`) can encode it, each block by its own largest value. Weights, buffers and whole numbers
never share a block, since they differ by orders of magnitude.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

BLOCK = 1024  # the number of values in a block; zeros fill up the last block of each group

HALF = 1 << 24
"""float32 holds every whole number up to this one; so whole numbers are sent as two values."""


Find = Callable[[], Iterable[list[Tensor]]]
"""Returns groups of the present tensors, not copies.

Groups share no block. All tensors of a group are of floating point, or none is.
"""


class TensorVector:
    """Several tensors as one.

    Floating-point tensors are float32. Whole numbers n, such as BatchNorm's count of batches,
    become two values, ⌊n / 2²⁴⌋ and n mod 2²⁴, which survive averaging in float64.
    """

    def __init__(self, *finds: Find) -> None:
        self._finds = finds
        self.shape = (sum(map(_num_blocks, self._groups())), BLOCK)

    def _groups(self) -> list[list[Tensor]]:
        return [tensors for find in self._finds for tensors in find()]

    @torch.no_grad()
    def read(self) -> Tensor:
        """Copies the present values of all tensors into one, float32 `shape`, on their device."""
        parts = [flat for tensors in self._groups() for flat in _filled_up(tensors)]
        return torch.cat(parts).view(self.shape) if parts else torch.empty(self.shape)

    @torch.no_grad()
    def write(self, *vectors: Tensor) -> None:
        """Copies a vector, in one piece or cut between groups, into the tensors, rounded."""
        rest, *pieces = vectors
        for tensors in self._groups():
            count = _num_blocks(tensors)
            while count and not len(rest):
                rest, *pieces = pieces
            _write(tensors, rest[:count].reshape(-1))
            rest = rest[count:]


class ModelVector(TensorVector):
    """The parameters and buffers of some models: weights, then floating-point buffers, then others.

    Attributes:
        num_weight_blocks: this many blocks at the beginning hold weights; the others hold buffers.
    """

    def __init__(self, *models: nn.Module) -> None:
        weights = weights_of(*models)
        super().__init__(weights, buffers_of(*models))
        self.num_weight_blocks, _ = TensorVector(weights).shape


# Each function looks tensors up by name once: in small models that takes longer than copying them.


def weights_of(*models: nn.Module) -> Find:
    """Finds the parameters of some models."""
    weights: list[Tensor] = [p for model in models for p in model.parameters()]
    return lambda: [weights]


def gradients_of(*models: nn.Module) -> Find:
    """Finds the gradients of trainable parameters; makes missing ones zeros."""
    trained = [p for model in models for p in model.parameters() if p.requires_grad]

    def find() -> Iterable[list[Tensor]]:
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [[p.grad for p in trained if p.grad is not None]]

    return find


def buffers_of(*models: nn.Module) -> Find:
    """Finds the saved buffers of some models: those of floating point, then the others.

    The result finds them anew at each call, since a model may replace a buffer by another tensor.
    """
    places = [place for model in models for place in places_of_buffers(model)]

    def find() -> Iterable[list[Tensor]]:
        buffers: list[Tensor] = [getattr(module, name) for module, name in places]
        yield [buffer for buffer in buffers if buffer.is_floating_point()]
        yield [buffer for buffer in buffers if not buffer.is_floating_point()]

    return find


def places_of_buffers(model: nn.Module) -> Iterable[tuple[nn.Module, str]]:
    """Yields each saved buffer of a model as its module, and its name in the module."""
    weights = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for path in model.state_dict():
        if path not in weights:
            module, _, name = path.rpartition(".")
            yield model.get_submodule(module), name


def _num_values(tensor: Tensor) -> int:
    return tensor.numel() * (1 if tensor.is_floating_point() else 2)


def _num_blocks(tensors: list[Tensor]) -> int:
    return -(-sum(map(_num_values, tensors)) // BLOCK)


def _filled_up(tensors: list[Tensor]) -> list[Tensor]:
    """The values of some tensors, and zeros that fill up their last block."""
    flat = [_as_floats(tensor) for tensor in tensors]
    missing = _num_blocks(tensors) * BLOCK - sum(map(len, flat))
    return [*flat, *(tensor.new_zeros(missing) for tensor in flat[-1:])]


def _as_floats(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    if tensor.is_floating_point():
        return flat.float()
    whole = flat.long()
    return torch.cat([whole.div(HALF, rounding_mode="floor"), whole.remainder(HALF)]).float()


def _write(tensors: list[Tensor], values: Tensor) -> None:
    begin = 0
    for tensor in tensors:
        part = values[begin : begin + _num_values(tensor)]
        begin += len(part)
        if tensor.is_floating_point():
            tensor.copy_(part.view_as(tensor))
        else:
            high, low = part.double().view(2, -1)
            tensor.copy_((high * HALF + low).round().view_as(tensor))
