"""Draws samples from a generator between training steps, and computes buffers anew from noise.

Buffers of both models are computed anew where those of workers must not leave their hosts.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from mdgan.gan.labels import call, even_labels, num_classes_of, uniform_counts
from mdgan.gan.randomness import RandomState, derive_seed, generator_for

_AT_ONCE = 256
_NUM_PASSES = 32  # BatchNorm keeps 0.9 of its mean in a pass, so 3 % of the old one are left


@torch.no_grad()
def sample_pieces(
    generator: nn.Module, num_samples: int, z_dim: int, seed: int, labels: Tensor | None = None
) -> Iterator[Tensor]:
    """Yields samples by 256, on the CPU; leaves the generator and random states as they were.

    Sample i depends on the seed alone, since G is in evaluation mode meanwhile. Labels of a
    conditional G are int64 [n], by default each class in turn.
    """
    device = next(generator.parameters()).device
    num_classes = num_classes_of(generator)
    if num_classes is not None and labels is None:
        labels = even_labels(uniform_counts(num_classes), num_samples)
    noise = generator_for(seed, "samples")
    state = RandomState(derive_seed(seed, "sampling"), device)
    for begin in range(0, num_samples, _AT_ONCE):
        count = min(_AT_ONCE, num_samples - begin)
        z = torch.stack([torch.randn(z_dim, generator=noise) for _ in range(count)])
        was_training = {module: module.training for module in generator.modules()}
        generator.eval()
        try:
            with state.in_place():
                piece_labels = None if labels is None else labels[begin : begin + count].to(device)
                piece = call(generator, z.to(device), piece_labels).float().cpu()
        finally:
            for module, training in was_training.items():
                module.training = training
        yield piece


def draw_samples(
    generator: nn.Module, num_samples: int, z_dim: int, seed: int, labels: Tensor | None = None
) -> Tensor:
    """All samples of `sample_pieces` in one tensor, float32 [n, C, H, W] in [−1, 1], on the CPU."""
    return torch.cat(list(sample_pieces(generator, num_samples, z_dim, seed=seed, labels=labels)))


@torch.no_grad()
def refresh_buffers(
    generator: nn.Module,
    discriminator: nn.Module,
    iteration: int,
    *,
    z_dim: int,
    batch_size: int,
    seed: int,
) -> None:
    """Passes some batches of noise through both models in training mode, without real samples.

    So BatchNorm's means and variances become those of generated samples, and spectral norm's
    vectors those of the present weights. Weights do not change.
    """
    if not [*generator.buffers(), *discriminator.buffers()]:
        return
    device = next(generator.parameters()).device
    noise = generator_for(seed, "statistics", iteration)
    made_for, judged_for = num_classes_of(generator), num_classes_of(discriminator)
    num_classes = made_for or judged_for
    labels = None
    if num_classes is not None:
        labels = even_labels(uniform_counts(num_classes), batch_size).to(device)
    with RandomState(derive_seed(seed, "statistics", iteration), device).in_place():
        for _ in range(_NUM_PASSES):
            z = torch.randn(batch_size, z_dim, generator=noise).to(device)
            samples = call(generator, z, labels if made_for is not None else None)
            call(discriminator, samples, labels if judged_for is not None else None)
