"""Norms of the gradients of single samples, layer by layer, without the gradients themselves.

If a layer processes each sample once, the sample's gradient follows from the layer's input and from
the gradient of its output (Goodfellow 2015, "Efficient per-example gradient computations"; for
convolutions Bu, Mao and Xu 2022, "Scalable and efficient training of large convolutional neural
networks with differential privacy", section 4). One product a layer then adds up the cut gradients,
which takes little more than a pass over the batch.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, call
from mdgan.gan.losses import DiscriminatorOutput, as_output

_KNOWN = (nn.Linear, nn.Conv2d, nn.GroupNorm)
_ROUNDINGS = 100.0
"""A sum over places may be tiny beside its terms, so that rounding decides its value. An attacker
that swaps its discriminator away can choose weights for that. So a norm counts as larger by what
this many roundings of the terms could amount to; see `_hidden`."""
_UNDERFLOW = 1.2e-38
"""Products below this are 0 in float32: slopes of 10⁻¹⁹ would have norm 0, and remain uncut beside
activations of 10¹⁸. So a norm counts as larger by what all its products could have lost."""


@dataclass(frozen=True)
class _Met:
    """One call of a layer in a pass: its input, the version of that tensor, and its output."""

    layer: nn.Module
    inputs: Tensor
    version: int  # changes when a later layer writes to the input
    made: Tensor


def layers_with_weights(model: nn.Module) -> list[nn.Module] | None:
    """All layers with weights of a model; None if some layer is of a kind unknown here."""
    layers = [m for m in model.modules() if list(m.parameters(recurse=False))]
    seen = [id(p) for layer in layers for p in layer.parameters(recurse=False)]
    known = all(_is_known(layer) for layer in layers) and len(set(seen)) == len(seen)
    return layers if known and layers else None


def _is_known(layer: nn.Module) -> bool:
    if type(layer) not in _KNOWN or not all(p.requires_grad for p in layer.parameters()):
        return False
    if isinstance(layer, nn.Conv2d):
        is_plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return is_plain and not isinstance(layer.padding, str)
    return True


def clipped_sum_by_layer(
    model: nn.Module, rules: LearningRules, real: Samples, count: int, clip: float
) -> tuple[dict[str, Tensor], Tensor] | None:
    """As `per_sample.clipped_sum`; None if a layer does not process each sample exactly once.

    Neither the operations nor their duration depend on the samples.
    """
    layers = layers_with_weights(model) or []
    met: list[_Met] = []

    def record(layer: nn.Module, inputs: Any, made: Any) -> Any:
        met.append(_Met(layer, inputs[0].detach(), inputs[0]._version, made=made))
        return made.clone()  # later layers may write to it

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        with torch.enable_grad():
            verdict = as_output(call(model, real.images.clone(), real.labels))
            losses = rules.loss(rules.discriminator_loss.real, verdict, real.labels) * len(real)
            calls = [id(one.layer) for one in met]
            if not len(set(calls)) == len(calls) == len(layers):  # a layer ran twice, or not at all
                return None
            if any(len(one.inputs) != len(real) for one in met):
                return None
            slopes = torch.autograd.grad(losses, [one.made for one in met], allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    if any(one.inputs._version != one.version for one in met):  # a later layer wrote to the input
        return None
    used = [(one, slope) for one, slope in zip(met, slopes, strict=True) if slope is not None]
    squares = [_squares(one.layer, one.inputs, slope) for one, slope in used]
    norms = torch.stack(squares).sum(0).sqrt() if squares else real.images.new_zeros(len(real))
    factors = factors_of(norms, count, clip).to(real.images.dtype)
    left_out, gradients = factors == 0, dict[int, Tensor]()
    for one, slope in used:
        weighted = zero(slope, left_out).mul_(_beside(factors, slope))
        inputs = zero(one.inputs, left_out)  # in place: nothing reads it after the pass
        gradients.update((id(w), summed) for w, summed in _summed(one.layer, inputs, weighted))
    total = {
        name: gradients[id(p)] if id(p) in gradients else torch.zeros_like(p)
        for name, p in model.named_parameters()
    }
    return total, loss_of(rules, verdict, real.labels, count=count)


def factors_of(norms: Tensor, count: int, clip: float) -> Tensor:
    """The factor of each gradient, [b]: 0 if its norm is not finite or its sample not counted."""
    counts = norms.isfinite() & (torch.arange(len(norms), device=norms.device) < count)
    return torch.where(counts, clip / norms.clamp(min=clip), 0.0)


def zero(values: Tensor, left_out: Tensor) -> Tensor:
    """Zeroes, in place, the values of samples that do not count, since 0 × NaN is NaN."""
    return values.masked_fill_(_beside(left_out, values), 0.0)


def _beside(factors: Tensor, values: Tensor) -> Tensor:
    """Numbers of samples, [b], reshaped so that they multiply values [b, …]."""
    return factors.view(-1, *[1] * (values.dim() - 1))


def loss_of(
    rules: LearningRules, verdict: DiscriminatorOutput, labels: Tensor | None, count: int
) -> Tensor:
    """The sum of Ã over the first samples, a scalar without a graph."""
    if not count:
        return verdict.logits.new_zeros(())
    first = verdict.split(count)[0]
    some = None if labels is None else labels[:count]
    with torch.no_grad():
        return rules.loss(rules.discriminator_loss.real, first, some) * count


def _squares(layer: nn.Module, inputs: Tensor, slope: Tensor) -> Tensor:
    """The squared norm of each sample's gradient of a layer's weights, [b]."""
    if isinstance(layer, nn.GroupNorm):
        product, over = _normal(layer, inputs) * slope, tuple(range(2, slope.dim()))
        return _squares_of_sum(product, over) + _squares_of_sum(slope, over)
    columns, slopes = _columns(layer, inputs, slope)
    total = _squares_of_product(slopes, columns)
    if slopes.shape[2] > 1:
        total = total + _hidden(slopes) * _squares_of_each(slopes) * _squares_of_each(columns)
    if layer.bias is not None:
        total = total + _squares_of_sum(slopes, (2,))
    return total


def _squares_of_sum(terms: Tensor, over: tuple[int, ...]) -> Tensor:
    """‖Σ terms‖² of each sample, [b], at least, summed over some dimensions; see `_ROUNDINGS`."""
    if not over:
        return _squares_of_each(terms)
    places = prod(terms.shape[each] for each in over)
    hidden = _hidden(terms) * places * _squares_of_each(terms) if places > 1 else 0.0
    return _squares_of_each(terms.sum(over)) + hidden


def _hidden(terms: Tensor) -> float:
    """The share of the squared sum of terms that rounding may hide."""
    return _ROUNDINGS * torch.finfo(terms.dtype).eps


def _squares_of_each(tensor: Tensor) -> Tensor:
    """‖x‖² of each sample, float64 [b], at least; see `_UNDERFLOW`."""
    rows = tensor.flatten(1)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.double().square() + _UNDERFLOW * rows.shape[1]


def _squares_of_product(slopes: Tensor, columns: Tensor) -> Tensor:
    """‖Σ_t s_t c_tᵀ‖² of each sample, from [b, n, T] and [b, m, T], the cheaper way."""
    places, n, m = slopes.shape[2], slopes.shape[1], columns.shape[1]
    if places == 1:
        return _squares_of_each(slopes) * _squares_of_each(columns)
    if places * (n + m) < n * m:  # Σ_t,t' (s_t·s_t')(c_t·c_t')
        products = ((slopes.mT @ slopes) * (columns.mT @ columns)).sum((1, 2)).clamp(min=0)
        lost = n * _squares_of_each(columns) + m * _squares_of_each(slopes)
        return products.double() + _UNDERFLOW * places * lost
    return _squares_of_each(slopes @ columns.mT)


def _columns(layer: nn.Module, inputs: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The inputs of each place of the output, [b, m, T], and the place's gradient, [b, n, T]."""
    if isinstance(layer, nn.Conv2d):
        padding = cast("tuple[int, int]", layer.padding)
        columns = F.unfold(inputs, layer.kernel_size, layer.dilation, padding, layer.stride)
        return columns, slope.flatten(2)
    first, last = inputs.shape[0], inputs.shape[-1]
    places = prod(inputs.shape[1:-1])
    return inputs.reshape(first, places, last).mT, slope.reshape(first, places, -1).mT


def _normal(layer: nn.GroupNorm, inputs: Tensor) -> Tensor:
    return F.group_norm(inputs, layer.num_groups, eps=layer.eps)


def _summed(layer: nn.Module, inputs: Tensor, weighted: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The gradient of each weight of a layer, from the cut gradients of its output."""
    if isinstance(layer, nn.GroupNorm):
        places = (0, *range(2, inputs.dim()))
        scale = (_normal(layer, inputs) * weighted).sum(places)
        return [(layer.weight, scale), (layer.bias, weighted.sum(places))]
    if isinstance(layer, nn.Conv2d):
        kernel: Tensor = conv2d_weight(  # type: ignore[no-untyped-call] # torch has no annotation
            inputs, layer.weight.shape, weighted, layer.stride, layer.padding, layer.dilation
        )
        bias = weighted.sum((0, 2, 3))
        return [(layer.weight, kernel), *([(layer.bias, bias)] if layer.bias is not None else [])]
    assert isinstance(layer, nn.Linear)
    flat, rows = weighted.flatten(0, -2), inputs.flatten(0, -2)
    matrix: list[tuple[Tensor, Tensor]] = [(layer.weight, flat.T @ rows)]
    return [*matrix, (layer.bias, flat.sum(0))] if layer.bias is not None else matrix
