"""How like real samples are to what was made of an answer: PSNR and SSIM, by torchmetrics."""

from typing import NamedTuple

import torch
from torch import Tensor

_RANGE = 2.0
_EQUAL = 100.0
"""The PSNR, in dB, of what is equal."""
_USUAL_WIDTH, _NARROW_WIDTH = 1.5, 0.5
_SMALLEST_USUAL, _SMALLEST = 22, 6


class Likeness(NamedTuple):
    """What was found.

    Attributes:
        psnr: of each sample and the image that is most like it, in dB, [b].
        places: which image that is, int64 [b].
    """

    psnr: Tensor
    places: Tensor


def likeness(samples: Tensor, images: Tensor) -> Likeness:
    """For each sample the image that is most like it.

    Args:
        samples: [b, C, H, W] in [−1, 1].
        images: [n, C, H, W] in [−1, 1].
    """
    from torchmetrics.functional.image import peak_signal_noise_ratio  # takes seconds to import

    found = []
    for sample in samples:
        every = peak_signal_noise_ratio(
            images, sample.expand_as(images), _RANGE, dim=(1, 2, 3), reduction="none"
        )
        found.append(every.reshape(-1).clamp(max=_EQUAL).max(dim=0))
    return Likeness(
        torch.stack([one.values for one in found]), torch.stack([one.indices for one in found])
    )


def mean_ssim(samples: Tensor, images: Tensor) -> float | None:
    """Mean structural similarity of pairs, [b, C, H, W] each; None if they are too small.

    The window is that of Wang et al. 2004 (σ = 1.5 pixels), of small pictures a third as wide.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure

    side = min(samples.shape[-2:])
    if side < _SMALLEST:
        return None
    width = _USUAL_WIDTH if side >= _SMALLEST_USUAL else _NARROW_WIDTH
    found = structural_similarity_index_measure(images, samples, sigma=width, data_range=_RANGE)
    assert isinstance(found, Tensor)
    return float(found)
