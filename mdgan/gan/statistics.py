"""Buffers of both models, found anew from noise alone, where those of workers must not travel."""

import torch
from torch import nn

from mdgan.gan.labels import call, even_labels, num_classes_of, uniform_counts
from mdgan.gan.randomness import RandomState, derive_seed, generator_for

_NUM_PASSES = 32
"""BatchNorm keeps 0.9 of its mean in a pass, so 3 % of the old one are left."""


@torch.no_grad()
def refresh_buffers(
    generator: nn.Module,
    discriminator: nn.Module,
    z_dim: int,
    batch_size: int,
    seed: int,
    iteration: int,
) -> None:
    """Passes some batches of noise through both models in training mode.

    So means and variances of BatchNorm become those of generated samples, and vectors of spectral
    norm those of the present weights. Weights stay as they are, and no real sample is needed.
    """
    if not [*generator.buffers(), *discriminator.buffers()]:
        return
    device = next(generator.parameters()).device
    noise = generator_for(seed, "statistics", iteration)
    made_for, judged_for = num_classes_of(generator), num_classes_of(discriminator)
    known = made_for or judged_for
    labels = None
    if known is not None:
        labels = even_labels(uniform_counts(known), batch_size).to(device)
    with RandomState(derive_seed(seed, "statistics", iteration), device).in_place():
        for _ in range(_NUM_PASSES):
            z = torch.randn(batch_size, z_dim, generator=noise).to(device)
            samples = call(generator, z, labels if made_for is not None else None)
            call(discriminator, samples, labels if judged_for is not None else None)
