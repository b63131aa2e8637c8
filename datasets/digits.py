"""1,797 handwritten digits, 8×8 grey; they come with scikit-learn, so nothing is downloaded.

Workers train on 1,438 of them. The other 359, a fifth of each class, are held out for scores; which
ones, was drawn at random once and for all.

The models are multi-layer perceptrons tuned to give readable digits in two minutes on two cores.
"""

from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn

from mdgan.data import InMemoryPartitioner

SHAPE = (1, 8, 8)
Z_DIM = 100
NUM_CLASSES = 10
DEFAULTS = {
    "iterations": 3500,
    "batch_size": 64,
    "generator_optimizer": "lr=5e-4",
    "discriminator_optimizer": "lr=1e-3",
    "ema": 200.0,
}


_HELD_OUT_EVERY = 5


class Partitioner(InMemoryPartitioner):
    """The 1,438 digits that are not held out, with their classes 0-9."""

    reads_files = False

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads the digits from scikit-learn; the folder is not used."""
        return _digits(held_out=False)


class HeldOut(InMemoryPartitioner):
    """The 359 digits that no worker trains on, with their classes 0-9."""

    reads_files = False

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads the digits from scikit-learn; the folder is not used."""
        return _digits(held_out=True)


def _digits(held_out: bool) -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    # Neighbours in the file are by the same writer, and their labels repeat. Python promises these
    # numbers for all of its versions.
    random = Random(0)
    order = sorted(range(len(labels)), key=lambda place: (int(labels[place]), random.random()))
    is_held_out = torch.zeros(len(labels), dtype=torch.bool)
    is_held_out[order[_HELD_OUT_EVERY - 1 :: _HELD_OUT_EVERY]] = True
    chosen = is_held_out if held_out else ~is_held_out
    return images[chosen] / 8 - 1, labels[chosen]


class Generator(nn.Sequential):
    """100 → 128 → 256 → 1×8×8; batch norm makes digits readable in a third of the time."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(Z_DIM, 128),
            nn.BatchNorm1d(128),
            nn.LeakyReLU(0.2),
            nn.Linear(128, 256),
            nn.BatchNorm1d(256),
            nn.LeakyReLU(0.2),
            nn.Linear(256, 64),
            nn.Tanh(),
            nn.Unflatten(1, SHAPE),
        )


class Discriminator(nn.Sequential):
    """64 → 256 → 128 → one logit."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(64, 256),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(256, 128),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(128, 1),
        )
