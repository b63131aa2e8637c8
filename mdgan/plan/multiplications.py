"""The multiplications of both models in one forward pass, found without computing them."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mdgan.gan.build import Models
from mdgan.gan.labels import call, num_classes_of
from mdgan.plan.padding import Multiplication


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it unannotated
    """Notes the sizes of every multiplication that runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        self.layers = [""]
        self.found: list[Multiplication] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        layer = self.layers[-1]
        if func is torch.ops.aten.convolution.default:
            self.found.append(_convolution(layer, args, result))
        elif func in _PRODUCTS:
            first, second = args[_PRODUCTS[func] :][:2]
            rows, inner, columns = first.shape[-2], first.shape[-1], second.shape[-1]
            self.found.append(Multiplication(layer, rows, columns, inner, prod(first.shape[:-2])))
        return result


_PRODUCTS: dict[Any, int] = {
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.baddbmm.default: 1,
}
"""Products of matrices, and which of their arguments is the first matrix."""


def _convolution(layer: str, args: Any, result: Tensor) -> Multiplication:
    """A convolution as a product of matrices for each place of its kernel and each group."""
    samples, weight, transposed, groups = args[0], args[1], args[6], args[8]
    pixels = samples if transposed else result
    inputs, outputs = samples.shape[1] // groups, result.shape[1] // groups
    rows = len(samples) * prod(pixels.shape[2:])
    return Multiplication(layer, rows, outputs, inputs, groups * prod(weight.shape[2:]))


def multiplications(
    models: Models, batch_sizes: Sequence[int]
) -> dict[int, list[Multiplication]] | None:
    """What both models multiply for a batch.

    Args:
        models: what makes them.
        batch_sizes: some b.

    Returns:
        By b, in the order in which it runs; None if the models cannot run without numbers.
    """
    recorder = _Recorder()
    found: dict[int, list[Multiplication]] = {}
    try:
        with torch.device("meta"), torch.no_grad():
            generator = _named(models.generator().eval(), "G", recorder)
            discriminator = _named(models.discriminator().eval(), "D", recorder)
            for b in batch_sizes:
                recorder.found = found[b] = []
                with recorder:
                    call(generator, torch.empty(b, models.z_dim), _labels(generator, b))
                    images = torch.empty(b, *models.shape)
                    call(discriminator, images, _labels(discriminator, b))
    except Exception:  # the user's own code may raise anything where there are no numbers
        return None
    return found


def _labels(model: nn.Module, batch_size: int) -> Tensor | None:
    return None if num_classes_of(model) is None else torch.zeros(batch_size, dtype=torch.int64)


def _named(model: nn.Module, network: str, recorder: _Recorder) -> nn.Module:
    """Tells the recorder in which layer of a model it is."""

    def enters(layer: str) -> Callable[..., None]:
        return lambda *_: recorder.layers.append(layer)

    for name, module in model.named_modules():
        module.register_forward_pre_hook(enters(f"{network} {name}".rstrip()))
        module.register_forward_hook(lambda *_: recorder.layers.pop() and None)
    return model
