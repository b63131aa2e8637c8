"""What is shown of a generator by default."""

import torch
from torch import nn

from mdgan.gan.labels import num_classes_of
from mdgan.gan.sampling import draw_samples
from mdgan.samples.contract import SampleKind

_NUM_SAMPLES = 64
_MOST_ROWS, _OF_A_CLASS = 16, 10


def usual_picture(
    kind: SampleKind, generator: nn.Module, z_dim: int, seed: int
) -> tuple[bytes | None, int]:
    """A PNG file of samples, and how many are in it; None if such samples cannot be seen.

    These are 64, or 10 of each class if G is conditional; of more than 16 classes 16 are shown.
    """
    if not kind.is_seen:
        return None, 0
    num_classes = num_classes_of(generator)
    if num_classes is None:
        return kind.png(draw_samples(generator, _NUM_SAMPLES, z_dim, seed)), _NUM_SAMPLES
    num_rows = min(num_classes, _MOST_ROWS)
    classes = torch.arange(num_rows) * num_classes // num_rows
    labels = classes.repeat_interleave(_OF_A_CLASS)
    samples = draw_samples(generator, len(labels), z_dim, seed, labels)
    return kind.class_png(samples, labels), len(labels)
