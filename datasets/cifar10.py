"""CIFAR-10: 50,000 pictures of ten kinds of things and 10,000 held out, 32×32 RGB (Krizhevsky).

Read from `<data-dir>/cifar-10-batches-py`, where torchvision puts it; nothing is downloaded here.
The models are DCGANs (Darmanger and Gombas, appendix A.2). The report gives no slope for LeakyReLU
and does not speak of biases: 0.2 and none, as in the code that it names as its source.
"""

import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torchvision import datasets

from mdgan.data import InMemoryPartitioner
from mdgan.errors import BadInput

SHAPE = (3, 32, 32)
Z_DIM = 100

_NUM_CLASSES = 10
_PIXELS = 3 * 32 * 32

# All that a pickle of lists, texts and arrays needs, by any version of NumPy.
_HARMLESS = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
}


class _Files(datasets.CIFAR10):  # type: ignore[misc]  # torchvision ships no types
    """torchvision's reader for any files of this format, not only the official ones."""

    train_list: ClassVar = [[name, None] for name, _ in datasets.CIFAR10.train_list]
    test_list: ClassVar = [[name, None] for name, _ in datasets.CIFAR10.test_list]
    meta: ClassVar = {**datasets.CIFAR10.meta, "md5": None}


class _Unpickler(pickle.Unpickler):
    """Calls only what arrays need: a file whose checksum nobody compares may ask for anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}")
        return super().find_class(module, name)


class Partitioner(InMemoryPartitioner):
    """The training set with its ten classes."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads torchvision's files, each checked before the reader unpickles it.

        Args:
            data_dir: the folder that holds `cifar-10-batches-py`.

        Returns:
            Images, uint8 [n, 3, 32, 32] in [0, 255]; labels, int64 [n] in [0, 9].

        Raises:
            BadInput: a file is missing or damaged.
        """
        files = _read(data_dir, train=True)
        self.class_names = tuple(files.classes)
        return _tensors(files)


class HeldOut(InMemoryPartitioner):
    """The 10,000 test pictures with their ten classes; no worker trains on them."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads torchvision's files, as Partitioner does."""
        files = _read(data_dir, train=False)
        self.class_names = tuple(files.classes)
        return _tensors(files)


def _tensors(files: _Files) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(files.data).permute(0, 3, 1, 2), torch.tensor(files.targets)


def _read(data_dir: Path, train: bool) -> _Files:
    folder = data_dir / _Files.base_folder
    download = (
        f'python -c "from torchvision.datasets import CIFAR10; '
        f"CIFAR10('{data_dir.as_posix()}', download=True)\""
    )
    training = [name for name, _ in _Files.train_list]
    test = [name for name, _ in _Files.test_list]
    names = [*training, *test, _Files.meta["filename"]]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise BadInput(
            f"--dataset cifar10: {folder} lacks {', '.join(missing)}; download with: {download}"
        )
    for name in [*(training if train else test), _Files.meta["filename"]]:
        try:
            _check(folder / name)
        except Exception as error:  # a damaged pickle raises whatever its bytes happen to spell
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BadInput(
                f"--dataset cifar10: {folder / name} is damaged or no CIFAR-10 file "
                f"({reason}); delete it, then download with: {download}"
            ) from error
    return _Files(root=data_dir, train=train, download=False)


def _check(path: Path) -> None:
    with path.open("rb") as file:
        content = _Unpickler(file, encoding="latin1").load()
    if path.name == _Files.meta["filename"]:
        class_names = content[_Files.meta["key"]]
        if len(class_names) != _NUM_CLASSES or not all(isinstance(n, str) for n in class_names):
            raise ValueError(f"label_names must be {_NUM_CLASSES} texts")
        return
    pixels, labels = content["data"], content["labels"]
    if not (
        isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.ndim == 2
    ) or pixels.shape != (len(labels), _PIXELS):
        raise ValueError(f"data must be uint8 of [{len(labels)}, {_PIXELS}] for that many labels")
    if not set(labels) <= set(range(_NUM_CLASSES)):
        raise ValueError(f"labels must be 0-{_NUM_CLASSES - 1}")


class Generator(nn.Sequential):
    """z of 100 → 512×4×4 → 256×8×8 → 128×16×16 → 3×32×32 in [−1, 1]."""

    def __init__(self) -> None:
        super().__init__(
            nn.Unflatten(1, (Z_DIM, 1, 1)),
            nn.ConvTranspose2d(Z_DIM, 512, 4, 1, 0, bias=False),
            nn.BatchNorm2d(512),
            nn.ReLU(),
            nn.ConvTranspose2d(512, 256, 4, 2, 1, bias=False),
            nn.BatchNorm2d(256),
            nn.ReLU(),
            nn.ConvTranspose2d(256, 128, 4, 2, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.ConvTranspose2d(128, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )


class Discriminator(nn.Sequential):
    """3×32×32 → 64×16×16 → 128×8×8 → 256×4×4 → one logit; the report's sigmoid is in the loss."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 64, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(64, 128, 4, 2, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.LeakyReLU(0.2),
            nn.Conv2d(128, 256, 4, 2, 1, bias=False),
            nn.BatchNorm2d(256),
            nn.LeakyReLU(0.2),
            nn.Conv2d(256, 1, 4, 1, 0, bias=False),
            nn.Flatten(),
        )
