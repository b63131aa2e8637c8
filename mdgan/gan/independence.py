"""Whether a network judges each sample by itself, whichever others are in its batch.

Noise hides what a sample adds. It does not hide what one changes of what all others add.
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
"""From samples [b, *shape] to what a network says of each, tensors [b, …]."""
_CLOSE = 1e-3  # of the largest value: rounding differs with the size of a batch
_STRANGE = (nan, inf, -1e30, 100.0)  # what other samples may be full of


def near_samples(number: int, shape: Sequence[int]) -> Tensor:
    """Samples near each other: mini-batch discrimination does not see those that are far apart."""
    return torch.rand(1, *shape) + 1e-2 * torch.rand(number, *shape)


def compares_samples(judge: Judge, samples: Tensor, which: Iterable[int]) -> bool:
    """Whether the gradient of what is said of a sample depends on another one.

    So it does with BatchNorm and mini-batch discrimination. Dropout and spectral norm keep samples
    apart.
    """
    parts = judge(samples.requires_grad_())
    for sample in which:
        said = torch.stack([part[sample].sum() for part in parts]).sum()
        if not said.requires_grad:
            return False
        (gradient,) = torch.autograd.grad(said, samples, retain_graph=True, allow_unused=True)
        if gradient is not None and gradient.count_nonzero() > gradient[sample].count_nonzero():
            return True
    return False


def why_dependent(network: nn.Module, judge: Judge, shape: Sequence[int]) -> str:
    """How what a network says of a sample depends on more than that; empty if it does not.

    The network is in evaluation mode. Batches of several sizes are tried, in other orders, with
    strange samples beside one, and after each other.
    """
    with RandomState(0, torch.device("cpu")).in_place(), _recorded(network) as layers:
        near, far = near_samples(3, shape), torch.rand(4, *shape) * 2 - 1
        five = torch.cat([near, far[:2]])
        strange = torch.stack([torch.full(tuple(shape), value) for value in _STRANGE])
        kept = {name: value.clone() for name, value in network.state_dict().items()}
        before = _said(judge, five), dict(layers)
        others = [([2], torch.cat([five[2:3], far[2:]])), ([4, 3, 2, 1, 0], five.flip(0))]
        others += [([1], torch.cat([five[1:2], strange])), ([0], five[:1]), ([4], five[4:])]
        others += [([0, 1, 2, 3, 4], torch.cat([five, strange[:1]])), ([0, 1, 2, 3, 4], five)]
        for places, batch in others:
            layers.clear()
            if not _is_same(_said(judge, batch), before[0], places):
                return "on the others of its batch, or on earlier ones" + _where(
                    layers, before[1], places
                )
        for name, value in network.state_dict().items():
            if not torch.equal(value, kept[name]):
                return f"on earlier ones (buffer {name} changes)"
        with suppress(RuntimeError), torch.enable_grad():  # not all that is computed has a gradient
            if compares_samples(judge, near.clone(), (0, len(near) - 1)):
                return "on the others of its batch"
    return ""


def _said(judge: Judge, batch: Tensor) -> list[Tensor]:
    return [part.detach().double() for part in judge(batch.clone())]


def _is_same(found: Sequence[Tensor], before: Sequence[Tensor], places: Sequence[int]) -> bool:
    """Whether the first rows are those that samples of other places had before."""
    return all(
        torch.allclose(
            now[: len(places)],
            then[places],
            rtol=_CLOSE,
            atol=_CLOSE * float(then.nan_to_num(0, 0, 0).abs().max()),
            equal_nan=True,
        )
        for now, then in zip(found, before, strict=True)
    )


def _where(layers: dict[str, Tensor], before: dict[str, Tensor], places: Sequence[int]) -> str:
    """The first layer that says something else of a sample than before, if any can be seen."""
    for name, now in layers.items():
        then = before.get(name)
        is_comparable = then is not None and now.shape[1:] == then.shape[1:] and len(then) == 5
        if is_comparable and then is not None and not _is_same([now], [then], places):
            return f" (layer {name})"
    return ""


@contextmanager
def _recorded(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """What layers without layers of their own have made last, by name and type."""
    made: dict[str, Tensor] = {}

    def keep(name: str, _layer: nn.Module, _given: Any, found: Any) -> None:
        if isinstance(found, Tensor) and found.is_floating_point() and found.dim():
            made[name] = found.detach().double()

    handles = []
    with suppress(RuntimeError):  # layers of TorchScript have no hooks
        for name, layer in network.named_modules():
            if not list(layer.children()):
                kind = getattr(layer, "original_name", type(layer).__name__)
                handles.append(layer.register_forward_hook(partial(keep, f"{name}, {kind}")))
    try:
        yield made
    finally:
        for handle in handles:
            handle.remove()
