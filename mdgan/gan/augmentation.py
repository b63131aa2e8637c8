"""The transformations of DiffAugment (Zhao et al. 2020); shapes are written [b, C, H, W].

Random numbers come from torch's default generator on the samples' device, for each sample apart.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_MOST_SHIFT = 0.125
_CUTOUT = 0.5


def augment(samples: Tensor, probability: Tensor | float = 1.0) -> Tensor:
    """DiffAugment's colour, translation and cutout (Zhao et al. 2020, section 3).

    Brightness changes by up to ±0.5, saturation by a factor in [0, 2], contrast by one in
    [0.5, 1.5]; the picture moves by up to an eighth of its size, zeros following; and a rectangle
    of half its height and width becomes zero.

    Each change happens to a sample with the probability, 1 in DiffAugment. Gradients with respect
    to the samples can be differentiated again.
    """
    for transform in (_recoloured, _translated, _cut_out):
        changed = transform(samples)
        happens = _uniform(samples) < probability  # drawn always, so that p changes no other draw
        samples = torch.where(happens, changed, samples)
    return samples


def _uniform(samples: Tensor) -> Tensor:
    """A random number in [0, 1[ for each sample, [b, 1, 1, 1]."""
    return torch.rand(len(samples), 1, 1, 1, device=samples.device, dtype=samples.dtype)


def _recoloured(samples: Tensor) -> Tensor:
    samples = samples + (_uniform(samples) - 0.5)
    grey = samples.mean(1, keepdim=True)
    samples = (samples - grey) * (_uniform(samples) * 2) + grey
    level = samples.mean((1, 2, 3), keepdim=True)
    return (samples - level) * (_uniform(samples) + 0.5) + level


def _translated(samples: Tensor) -> Tensor:
    height, width = samples.shape[-2:]
    most_down, most_right = (int(size * _MOST_SHIFT + 0.5) for size in (height, width))
    down, right = (
        torch.randint(-most, most + 1, (len(samples), 1), device=samples.device)
        for most in (most_down, most_right)
    )
    rows = _places(samples, height) + down + most_down
    columns = _places(samples, width) + right + most_right
    padded = F.pad(samples, (most_right, most_right, most_down, most_down))
    batch = torch.arange(len(samples), device=samples.device)[:, None, None]
    # A gather has second derivatives, which grid_sample lacks; a penalty needs them.
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def _places(samples: Tensor, size: int) -> Tensor:
    return torch.arange(size, device=samples.device).expand(len(samples), size)


def _cut_out(samples: Tensor) -> Tensor:
    outside = []
    for size in samples.shape[-2:]:
        half = int(size * _CUTOUT + 0.5)
        middle = torch.randint(0, size + 1 - half % 2, (len(samples), 1), device=samples.device)
        first = middle - half // 2
        places = _places(samples, size)
        outside.append((places < first) | (places >= first + half))
    down, right = outside
    mask = down[:, None, :, None] | right[:, None, None, :]
    return samples * mask
