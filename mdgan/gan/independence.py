"""Checks whether a network judges each sample by itself, whatever else is in its batch.

Differential privacy needs that: noise hides the gradient of one sample, but not what this sample
changes in the gradients of all others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf, nan
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.gan.randomness import RandomState

Judge = Callable[[Tensor], Sequence[Tensor]]
"""From samples [b, *shape] to a network's outputs for each, tensors [b, …]."""
_CLOSE = 1e-3  # of the largest value; rounding differs with the size of a batch
_STRANGE = (nan, inf, -1e30, 100.0)  # values that fill the strange samples


def near_samples(number: int, shape: Sequence[int]) -> Tensor:
    """Samples near each other, since mini-batch discrimination ignores those that are far apart."""
    return torch.rand(1, *shape) + 1e-2 * torch.rand(number, *shape)


def compares_samples(judge: Judge, samples: Tensor, which: Iterable[int]) -> bool:
    """Whether the outputs for a sample have a gradient with respect to other samples.

    They have with BatchNorm and mini-batch discrimination, not with dropout and spectral norm.
    """
    parts = judge(samples.requires_grad_())
    for sample in which:
        total = torch.stack([part[sample].sum() for part in parts]).sum()
        if not total.requires_grad:
            return False
        (gradient,) = torch.autograd.grad(total, samples, retain_graph=True, allow_unused=True)
        if gradient is not None and gradient.count_nonzero() > gradient[sample].count_nonzero():
            return True
    return False


def why_dependent(network: nn.Module, judge: Judge, shape: Sequence[int]) -> str:
    """Says on what else than a sample the network's outputs for it depend; empty if on nothing.

    The network is in evaluation mode. The check tries batches of several sizes, in other orders,
    with strange samples, and one after the other.
    """
    with RandomState(0, torch.device("cpu")).in_place(), _recorded(network) as layers:
        near, far = near_samples(3, shape), torch.rand(4, *shape) * 2 - 1
        five = torch.cat([near, far[:2]])
        strange = torch.stack([torch.full(tuple(shape), value) for value in _STRANGE])
        weights = {name: value.clone() for name, value in network.state_dict().items()}
        outputs, layer_outputs = _outputs(judge, five), dict(layers)
        # The places in `five` of the first samples of each batch, and the batch.
        trials = [([2], torch.cat([five[2:3], far[2:]])), ([4, 3, 2, 1, 0], five.flip(0))]
        trials += [([1], torch.cat([five[1:2], strange])), ([0], five[:1]), ([4], five[4:])]
        trials += [([0, 1, 2, 3, 4], torch.cat([five, strange[:1]])), ([0, 1, 2, 3, 4], five)]
        for places, batch in trials:
            layers.clear()
            if not _is_same(_outputs(judge, batch), outputs, places):
                where = _where(layers, layer_outputs, places)
                return f"on the others of its batch, or on earlier ones{where}"
        for name, value in network.state_dict().items():
            if not torch.equal(value, weights[name]):
                return f"on earlier ones (buffer {name} changes)"
        with suppress(RuntimeError), torch.enable_grad():  # some outputs have no gradient
            if compares_samples(judge, near.clone(), (0, len(near) - 1)):
                return "on the others of its batch"
    return ""


def _outputs(judge: Judge, batch: Tensor) -> list[Tensor]:
    return [part.detach().double() for part in judge(batch.clone())]


def _is_same(outputs: Sequence[Tensor], first: Sequence[Tensor], places: Sequence[int]) -> bool:
    """Whether the first rows of outputs equal those at some places of the first outputs."""
    return all(
        torch.allclose(
            output[: len(places)],
            expected[places],
            rtol=_CLOSE,
            atol=_CLOSE * float(expected.nan_to_num(0, 0, 0).abs().max()),
            equal_nan=True,
        )
        for output, expected in zip(outputs, first, strict=True)
    )


def _where(layers: dict[str, Tensor], first: dict[str, Tensor], places: Sequence[int]) -> str:
    """Names the first layer whose output for a sample has changed, if one can be compared."""
    for name, output in layers.items():
        expected = first.get(name)
        if expected is None or output.shape[1:] != expected.shape[1:] or len(expected) != 5:
            continue
        if not _is_same([output], [expected], places):
            return f" (layer {name})"
    return ""


@contextmanager
def _recorded(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Records the last output of each innermost layer, by the layer's name and type."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and output.dim():
            outputs[name] = output.detach().double()

    handles = []
    with suppress(RuntimeError):  # layers of TorchScript have no hooks
        for name, layer in network.named_modules():
            if not list(layer.children()):
                kind = getattr(layer, "original_name", type(layer).__name__)
                handles.append(layer.register_forward_hook(partial(keep, f"{name}, {kind}")))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
