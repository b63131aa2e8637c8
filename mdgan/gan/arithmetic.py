"""The precision and the memory layout in which models compute.

Code calls a prepared model like any other.

With bf16 and fp16, weights, losses and optimizers stay in float32, and layers compute in 16 bits
except the last one: ParaGAN (sections 3.3 and 4.3) found that the last layers of both networks, the
gradients and the weights are too sensitive for 16 bits. Its users choose the precision of each
layer (section 6.5); here users name the layers that stay in float32.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FP16_LOSS_SCALE = 1024.0


def prepare(
    model: nn.Module,
    device: torch.device,
    *,
    precision: str,
    channels_last: bool,
    compiled: bool,
    exact: Sequence[str] = (),
) -> nn.Module:
    """Sets a model's precision and layout, but for layers named `exact`; float32 in and out."""
    if channels_last:
        model.to(memory_format=torch.channels_last)
    dtype = _DTYPES.get(precision)
    if dtype is not None:
        layers = layers_of(model)
        for name, layer in layers.items():
            is_exact = any(fnmatchcase(name, pattern) for pattern in exact)
            if is_exact or layer is [*layers.values()][-1]:
                _keep_exact(layer, device)
    if dtype is not None or channels_last:
        _run_in(model, device, dtype, channels_last=channels_last)
    if compiled:
        model.compile()
    return model


def loss_scale(precision: str) -> float:
    """The factor of losses, a power of 2, that keeps small gradients from vanishing in fp16.

    fp16 has no numbers between 0 and 6·10⁻⁸; bf16 has float32's range.
    """
    return _FP16_LOSS_SCALE if precision == "fp16" else 1.0


def finite_or_zero(gradients: Sequence[Tensor], scale: float) -> None:
    """Divides gradients by a loss scale, in place; if one has overflowed, sets all to zero."""
    if scale == 1.0:
        return
    torch._foreach_div_(list(gradients), scale)
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):
        torch._foreach_zero_(list(gradients))


def layers_of(model: nn.Module) -> Mapping[str, nn.Module]:
    """The modules with weights of their own, by name, in order; the model if there are none."""
    # Not the modules that spectral norm adds to a layer: nothing calls them by themselves.
    layers = {
        name: module
        for name, module in model.named_modules()
        if not isinstance(module, parametrize.ParametrizationList)
        and (list(module.parameters(recurse=False)) or parametrize.is_parametrized(module))
    }
    return layers or {"": model}


def _keep_exact(layer: nn.Module, device: torch.device) -> None:
    forward = layer.forward

    def exactly(*values: Tensor) -> Tensor:
        with torch.autocast(device.type, enabled=False):
            result: Tensor = forward(*(v.float() if v.is_floating_point() else v for v in values))
            return result

    layer.forward = exactly


def _run_in(
    model: nn.Module, device: torch.device, dtype: torch.dtype | None, *, channels_last: bool
) -> None:
    forward = model.forward

    def run(values: Tensor, *labels: Tensor) -> Tensor | tuple[Tensor, ...]:
        if channels_last and values.dim() == 4:
            values = values.contiguous(memory_format=torch.channels_last)
        # Without a cache: weights change between calls, and a cache would keep the old weights.
        with torch.autocast(device.type, dtype, enabled=dtype is not None, cache_enabled=False):
            result: Tensor | tuple[Tensor, ...] = forward(values, *labels)
        if isinstance(result, Tensor):
            return result.float()
        return tuple(part.float() for part in result)  # logits, and logits of classes

    model.forward = run
