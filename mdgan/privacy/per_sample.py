"""Gradients of single samples, cut to a norm and added up (Abadi et al. 2016, Algorithm 1).

Shapes are written [b, C, H, W]: b samples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrize

from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, inputs
from mdgan.gan.losses import as_output
from mdgan.gan.regularizers.contract import Penalty
from mdgan.privacy.layer_norms import clipped_sum_by_layer, factors_of, layers_with_weights, zero

_MOST_BYTES = 256 << 20
_MOST_AT_ONCE = 64

Gradients = Mapping[str, Tensor]  # by a parameter's name


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that a model trains, by name, without a graph."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def num_at_once(model: nn.Module) -> int:
    """How many samples' gradients are in memory at a time: at least one, else at most 256 MiB."""
    of_one = sum(4 * weights.numel() for weights in trained(model).values())
    return max(1, min(_MOST_AT_ONCE, _MOST_BYTES // max(1, of_one)))


def clipped_sum(
    model: nn.Module,
    rules: LearningRules,
    real: Samples,
    count: int,
    clip: float,
    penalties: Sequence[Penalty] = (),
) -> tuple[dict[str, Tensor], Tensor]:
    """Σ_i g_i · min(1, C / ‖g_i‖₂), g_i being the gradient of Ã of sample i over all parameters.

    A sample whose gradient is not finite counts as 0. Dropout draws a mask for each sample. The
    duration depends on b, but neither on the samples nor on how many count.

    Args:
        model: D, in training mode; spectral norm takes its step, whatever the samples are.
        real: [b, C, H, W], b ≥ 1.
        count: only the first `count` samples count.

    Returns:
        The sum, by name and of the parameter's shape; and the sum of Ã, a scalar.
    """
    if not penalties and layers_with_weights(model) is not None:
        outside = torch.get_rng_state()
        results = clipped_sum_by_layer(model, rules, real, count=count, clip=clip)
        if results is not None:
            return results
        torch.set_rng_state(outside)
    weights, losses = trained(model), real.images.new_zeros(())
    total = {name: torch.zeros_like(value) for name, value in weights.items()}
    with still(model):
        for first in range(0, len(real), num_at_once(model)):
            some = real[first : first + num_at_once(model)]
            counted = min(max(0, count - first), len(some))
            gradients, of_each = per_sample_gradients(model, rules, some, penalties=penalties)
            add_clipped(total, gradients, counted, clip=clip)
            losses = losses + of_each[:counted].sum()
    return total, losses


def per_sample_gradients(
    model: nn.Module, rules: LearningRules, real: Samples, penalties: Sequence[Penalty] = ()
) -> tuple[dict[str, Tensor], Tensor]:
    """g_i of each sample, by name: [b, *shape of the parameter]; and Ã of each, [b]."""
    gradients = grad(_loss_of_one(model, rules, penalties), has_aux=True)
    labels = () if real.labels is None else (real.labels,)
    over = (None, *(0 for _ in range(1 + len(labels))))
    results: tuple[dict[str, Tensor], Tensor] = vmap(gradients, over, randomness="different")(
        trained(model), real.images, *labels
    )
    return results


def _loss_of_one(
    model: nn.Module, rules: LearningRules, penalties: Sequence[Penalty]
) -> Callable[..., tuple[Tensor, Tensor]]:
    """A function of weights, an image [C, H, W] and its label, if any: penalised loss, and Ã."""
    kept = {
        **{name: p.detach() for name, p in model.named_parameters() if not p.requires_grad},
        **dict(model.named_buffers()),
    }

    def judged(weights: Gradients, image: Tensor, *label: Tensor) -> tuple[Tensor, Tensor]:
        y = label[0].unsqueeze(0) if label else None
        state = {**kept, **weights}
        verdict = as_output(functional_call(model, state, inputs(image.unsqueeze(0), y)))
        return rules.loss(rules.discriminator_loss.real, verdict, y), verdict.logits.sum()

    def loss(weights: Gradients, image: Tensor, *label: Tensor) -> tuple[Tensor, Tensor]:
        of_one, _ = judged(weights, image, *label)
        return of_one, of_one

    def penalised(weights: Gradients, image: Tensor, *label: Tensor) -> tuple[Tensor, Tensor]:
        def logit(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            of_one, summed = judged(weights, x, *label)
            return summed, (of_one, summed)

        slope, (of_one, summed) = grad(logit, has_aux=True)(image)
        whole = of_one
        for penalty in penalties:
            whole = whole + penalty.of_samples(summed.unsqueeze(0), slope.unsqueeze(0))
        return whole, of_one

    return penalised if penalties else loss


def add_clipped(total: Mapping[str, Tensor], gradients: Gradients, count: int, clip: float) -> None:
    """Adds gradients of single samples to a sum, each cut to the norm C over all parameters."""
    squares = [each.reshape(len(each), -1).square().sum(1) for each in gradients.values()]
    factors = factors_of(torch.stack(squares).sum(0).sqrt(), count, clip)
    for name, each in gradients.items():
        total[name].add_(torch.tensordot(factors, zero(each, factors == 0), dims=1))


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Spectral norm takes one step before the block and none in it, however many samples."""
    lists = [m for m in model.modules() if isinstance(m, parametrize.ParametrizationList)]
    training = {part: part.training for parts in lists for part in parts}
    with torch.no_grad():
        for parts in lists:
            parts()
    for part in training:
        part.eval()
    try:
        yield
    finally:
        for part, was in training.items():
            part.train(was)
