"""Pictures of what a generator makes."""

import io
from math import ceil, sqrt

import torch
from torch import Tensor, nn
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from mdgan.algorithms.randomness import RandomState, derive_seed, generator_for
from mdgan.data.images import float_to_pixels

_LEAST_SIDE_PIXELS = 48
_AT_ONCE = 256


@torch.no_grad()
def draw_samples(generator: nn.Module, num_samples: int, z_dim: int, seed: int) -> Tensor:
    """What a generator makes of fixed noise; it and all random states are left as they were.

    Args:
        generator: G; put into evaluation mode meanwhile, so a sample does not depend on the others.
        num_samples: n.
        z_dim: the length of G's input.
        seed: decides the noise; sample i is the same whatever n is.

    Returns:
        float32 [n, C, H, W] in [−1, 1], on the CPU.
    """
    device = next(generator.parameters()).device
    noise = generator_for(seed, "samples")
    z = torch.stack([torch.randn(z_dim, generator=noise) for _ in range(num_samples)])
    was_training = {module: module.training for module in generator.modules()}
    generator.eval()
    try:
        with RandomState(derive_seed(seed, "sampling"), device).in_place():
            parts = [generator(part.to(device)).cpu() for part in torch.split(z, _AT_ONCE)]
    finally:
        for module, training in was_training.items():
            module.training = training
    return torch.cat(parts).float()


def grid_png(images: Tensor) -> bytes:
    """A square grid, small images enlarged without smoothing so that people can see them.

    Args:
        images: float [n, C, H, W] in [−1, 1].

    Returns:
        A PNG file.
    """
    factor = max(1, ceil(_LEAST_SIDE_PIXELS / max(images.shape[-2:])))
    pixels = float_to_pixels(images)
    pixels = pixels.repeat_interleave(factor, dim=-2).repeat_interleave(factor, dim=-1)
    grid = make_grid(pixels, nrow=ceil(sqrt(len(images))), padding=2, pad_value=32)
    buffer = io.BytesIO()
    to_pil_image(grid).save(buffer, format="PNG")
    return buffer.getvalue()
