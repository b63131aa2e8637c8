"""MNIST: 60,000 handwritten digits and 10,000 held out, 28×28 grey (LeCun, Cortes and Burges).

This file reads `<data-dir>/MNIST/raw`, where torchvision puts the data; it downloads nothing. The
models are multi-layer perceptrons (Darmanger and Gombas, appendix A.1).
"""

from pathlib import Path

from torch import Tensor, nn
from torchvision import datasets

from mdgan.data import InMemoryPartitioner
from mdgan.errors import BadInput, reason_of
from mdgan.spelling import flag
from mdgan.storage.budget import check_whole

SHAPE = (1, 28, 28)
Z_DIM = 100
NUM_CLASSES = 10
DEFAULTS = {
    "batch_size": 64,
    "generator_optimizer": "lr=5e-4",
    "discriminator_optimizer": "lr=1e-3",
    "ema": 200.0,
}

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class Partitioner(InMemoryPartitioner):
    """The training set with its classes 0-9."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads torchvision's files.

        Args:
            data_dir: the folder that holds `MNIST/raw`.

        Returns:
            Images, uint8 [n, 1, 28, 28] in [0, 255]; labels, int64 [n] in [0, 9].

        Raises:
            BadInput: a file is missing or damaged.
        """
        return _read(data_dir, train=True)


class HeldOut(InMemoryPartitioner):
    """The 10,000 test digits with their classes 0-9; no worker trains on them."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads torchvision's files, as Partitioner does."""
        return _read(data_dir, train=False)


def _read(data_dir: Path, train: bool) -> tuple[Tensor, Tensor]:
    folder = data_dir / "MNIST" / "raw"
    download = (
        f'python -c "from torchvision.datasets import MNIST; '
        f"MNIST('{data_dir.as_posix()}', download=True)\""
    )
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise BadInput(
            flag("dataset", "mnist"),
            f"{folder} lacks {', '.join(missing)}",
            f"download with: {download}",
        )
    try:
        for name in _FILES:
            check_whole(folder / name)
        files = datasets.MNIST(root=data_dir, train=train, download=False)
        pixels, labels = files.data.unsqueeze(1), files.targets
        _check(pixels, labels)
    except Exception as error:  # torchvision may raise anything on damaged files
        images_file, labels_file = _FILES[:2] if train else _FILES[2:]
        raise BadInput(
            flag("dataset", "mnist"),
            f"{images_file} or {labels_file} in {folder} is damaged ({reason_of(error)})",
            f"delete both, then download with: {download}",
        ) from error
    return pixels, labels


def _check(pixels: Tensor, labels: Tensor) -> None:
    if pixels.shape[1:] != SHAPE:
        raise ValueError(f"images of {list(pixels.shape[1:])}, not {list(SHAPE)}")
    if len(pixels) != len(labels):
        raise ValueError(f"{len(pixels)} images but {len(labels)} labels")
    if labels.gt(9).any():
        raise ValueError(f"label {int(labels.max())}, not 0-9")


class Generator(nn.Sequential):
    """z of 100 → 256 → 512 → 1024 → 1×28×28 in [−1, 1]."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(Z_DIM, 256),
            nn.LeakyReLU(0.2),
            nn.Linear(256, 512),
            nn.LeakyReLU(0.2),
            nn.Linear(512, 1024),
            nn.LeakyReLU(0.2),
            nn.Linear(1024, 784),
            nn.Tanh(),
            nn.Unflatten(1, SHAPE),
        )


class Discriminator(nn.Sequential):
    """784 → 1024 → 512 → 256 → one logit; the report's final sigmoid is part of the loss."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(784, 1024),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(1024, 512),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(512, 256),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(256, 1),
        )
