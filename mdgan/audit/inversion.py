"""Gradient inversion: rebuilds real samples from a worker's single answer, and compares them.

Zhu et al. 2019, "Deep Leakage from Gradients", with the cosine distance, the signs of gradients and
the prior of Geiping et al. 2020, "Inverting Gradients", sections 4 and 5.

Shapes are written [b, C, H, W]: b samples.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.losses import DiscriminatorOutput, Term, as_output, with_class_loss

_RATE = 0.1
_SMOOTH = 1e-3
_BEGINNING = 0.3
_RANGE = 2.0
_PICTURE_DIMS = 4  # [b, C, H, W]
_EQUAL = 100.0  # the PSNR, in dB, of what is equal
_USUAL_WIDTH, _NARROW_WIDTH = 1.5, 0.5
_SMALLEST_USUAL, _SMALLEST = 22, 6

Evidence = list[Tensor]  # the tensors of an answer

Explains = Callable[[Samples], Evidence]
"""Computes the answer that a real batch would have given, with a graph to its images."""


class Attacked(NamedTuple):
    """D in evaluation mode, since attackers do not know masks of dropout; and the run's losses."""

    model: nn.Module
    real: Term
    fake: Term
    judged: Term
    class_weight: float = 1.0

    def loss(
        self, term: Term, samples: Samples, weights: dict[str, Tensor] | None = None
    ) -> Tensor:
        """One of the losses of a batch, by D's weights or by others."""
        labels = None if num_classes_of(self.model) is None else samples.labels
        inputs = (samples.images,) if labels is None else (samples.images, labels)
        output = functional_call(self.model, weights or {}, inputs)
        verdict: DiscriminatorOutput = as_output(output)
        return with_class_loss(term(verdict.logits), verdict, labels, weight=self.class_weight)

    def gradient(self, term: Term, samples: Samples) -> dict[str, Tensor]:
        """∂loss/∂θ by name, with a graph to the images if these have one."""
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(
            self.loss(term, samples),
            list(named.values()),
            create_graph=samples.images.requires_grad,
            materialize_grads=True,
        )
        return dict(zip(named, gradients, strict=True))


def of_update(attacked: Attacked) -> Explains:
    """Makes a function of a real batch that computes ∂Ã/∂θ."""
    return lambda real: list(attacked.gradient(attacked.real, real).values())


def of_feedback(attacked: Attacked, fake: Samples, judged: Samples, rate: float) -> Explains:
    """Makes a function of a real batch: how one step of plain descent of D changes feedback."""
    weights = dict(attacked.model.named_parameters())
    before = feedback_of(attacked, judged)
    of_fake = attacked.gradient(attacked.fake, fake.detach())

    def explain(real: Samples) -> Evidence:
        of_real = attacked.gradient(attacked.real, real)
        stepped = {n: weights[n] - rate * (of_real[n] + of_fake[n]) for n in of_real}
        return [feedback_of(attacked, judged, stepped, graph=real.images.requires_grad) - before]

    return explain


def feedback_of(
    attacked: Attacked,
    judged: Samples,
    weights: dict[str, Tensor] | None = None,
    *,
    graph: bool = False,
) -> Tensor:
    """∂J_gen/∂X^(g), [b, C, H, W]."""
    images = judged.images.detach().requires_grad_()
    loss = attacked.loss(attacked.judged, judged.of(images), weights)
    (feedback,) = torch.autograd.grad(loss, images, create_graph=graph)
    return feedback


def alignment(one: Evidence, other: Sequence[Tensor]) -> Tensor:
    """The cosine of the angle between two answers, a scalar in [−1, 1]."""
    dot = sum(((a * b).sum() for a, b in zip(one, other, strict=True)), torch.zeros(()))
    lengths = [sum((part.square().sum() for part in of), torch.zeros(())) for of in (one, other)]
    return dot / (lengths[0] * lengths[1]).sqrt().clamp(min=1e-30)


def reconstruct(
    explain: Explains, seen: Evidence, like: Samples, random: torch.Generator, steps: int
) -> Tensor:
    """Searches for images in [−1, 1], of the size and labels of `like`, that explain an answer."""
    noise = _BEGINNING * torch.randn(like.images.shape, generator=random)
    guess = noise.clamp(-1, 1).requires_grad_()
    adam = torch.optim.Adam([guess], lr=_RATE)
    milestones = [steps * eighths // 8 for eighths in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(adam, milestones, gamma=0.1)
    best, least = guess.detach().clone(), torch.inf
    for _ in range(steps):
        distance = 1 - alignment(explain(like.of(guess)), seen)
        (slope,) = torch.autograd.grad(distance + _SMOOTH * _roughness(guess), guess)
        if distance.item() < least:
            best, least = guess.detach().clone(), distance.item()
        guess.grad = slope.nan_to_num().sign()
        adam.step()
        schedule.step()
        with torch.no_grad():
            guess.clamp_(-1, 1)
    return best


def _roughness(images: Tensor) -> Tensor:
    """Total variation of pictures, the mean over neighbours; 0 of other samples."""
    if images.dim() != _PICTURE_DIMS:
        return torch.zeros(())
    down = (images[..., 1:, :] - images[..., :-1, :]).abs()
    right = (images[..., :, 1:] - images[..., :, :-1]).abs()
    return sum((part.mean() for part in (down, right) if part.numel()), torch.zeros(()))


def likeness(samples: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """For each of b samples the PSNR, in dB, of the image most like it, and its index, int64."""
    from torchmetrics.functional.image import peak_signal_noise_ratio  # takes seconds to import

    best = []
    of_a_sample = tuple(range(1, images.dim()))
    for sample in samples:
        ratios = peak_signal_noise_ratio(
            images, sample.expand_as(images), _RANGE, dim=of_a_sample, reduction="none"
        )
        best.append(ratios.reshape(-1).clamp(max=_EQUAL).max(dim=0))
    return torch.stack([one.values for one in best]), torch.stack([one.indices for one in best])


def mean_ssim(samples: Tensor, images: Tensor) -> float | None:
    """Mean structural similarity of pairs, [b, C, H, W] each; None if no pictures, or too small.

    The window is that of Wang et al. 2004 (σ = 1.5 pixels), for small pictures a third as wide.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure

    side = min(samples.shape[-2:]) if samples.dim() == _PICTURE_DIMS else 0
    if side < _SMALLEST:
        return None
    width = _USUAL_WIDTH if side >= _SMALLEST_USUAL else _NARROW_WIDTH
    mean = structural_similarity_index_measure(images, samples, sigma=width, data_range=_RANGE)
    assert isinstance(mean, Tensor)
    return float(mean)
