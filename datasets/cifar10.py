"""CIFAR-10: 50,000 pictures of ten kinds of things and 10,000 held out, 32×32 RGB (Krizhevsky).

This file reads `<data-dir>/cifar-10-batches-py`, where torchvision puts the data; it downloads
nothing. The models are DCGANs (Darmanger and Gombas, appendix A.2). The report gives no slope for
LeakyReLU and does not mention biases. These models have a slope of 0.2 and no biases, like the code
that the report names as its source.
"""

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.data import InMemoryPartitioner
from mdgan.errors import BadInput, reason_of
from mdgan.models import dcgan
from mdgan.spelling import flag
from mdgan.storage.foreign_file import MOST_PICTURE_BYTES, read_whole

SHAPE = (3, 32, 32)
Z_DIM = 100
NUM_CLASSES = 10
DEFAULTS = {**dcgan.SUITED}

_FOLDER = "cifar-10-batches-py"
_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)
_META = "batches.meta"
_PIXELS = 3 * 32 * 32


class _Bytes:
    """An array of bytes that is being unpickled; afterwards `value` holds it.

    It replaces NumPy's arrays and their type in pickles, since those trust what a file says.
    """

    def __init__(self, *_: object) -> None:
        self.value: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) == 5:  # the state of an array, not of a type
            _, shape, _, is_fortran, content = state
            if is_fortran:
                raise pickle.UnpicklingError("its array lies column by column")
            self._hold(content, shape)

    def _hold(self, content: Any, shape: Any) -> None:
        data = content.encode("latin1") if isinstance(content, str) else content
        self.value = np.frombuffer(data, np.uint8).reshape(shape)

    @classmethod
    def from_buffer(cls, content: Any, _dtype: object, shape: Any, order: str) -> "_Bytes":
        """The function that NumPy's pickles call from protocol 5 on."""
        array = cls()
        if order != "C":
            raise pickle.UnpicklingError("its array lies column by column")
        array._hold(content, shape)
        return array


def _as_bytes(text: str, encoding: str) -> bytes:
    """The function that Python 3's pickles call in protocols that have no bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it wants to encode as {encoding}")
    return text.encode("latin1")


# What pickles of lists, texts and arrays of bytes need, from any version of NumPy.
_SAFE_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _as_bytes,
    ("numpy", "dtype"): _Bytes,
    ("numpy", "ndarray"): _Bytes,
    ("numpy.core.multiarray", "_reconstruct"): _Bytes,
    ("numpy._core.multiarray", "_reconstruct"): _Bytes,
    ("numpy.core.numeric", "_frombuffer"): _Bytes.from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _Bytes.from_buffer,
}


class _Unpickler(pickle.Unpickler):
    """Calls nothing but the functions above, since a hostile file may ask for any function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _SAFE_CALLS:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}")
        return _SAFE_CALLS[module, name]


class Partitioner(InMemoryPartitioner):
    """The training set with its ten classes."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads the files that torchvision downloads.

        Args:
            data_dir: the folder that holds `cifar-10-batches-py`.

        Returns:
            Images, uint8 [n, 3, 32, 32] in [0, 255]; labels, int64 [n] in [0, 9].

        Raises:
            BadInput: a file is missing or damaged.
        """
        pixels, labels, self.class_names = _read(data_dir, _TRAINING)
        return pixels, labels


class HeldOut(InMemoryPartitioner):
    """The 10,000 test pictures with their ten classes; no worker trains on them."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads the files that torchvision downloads, as Partitioner does."""
        pixels, labels, self.class_names = _read(data_dir, _TEST)
        return pixels, labels


def _read(data_dir: Path, batches: tuple[str, ...]) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    folder = data_dir / _FOLDER
    download = (
        f'python -c "from torchvision.datasets import CIFAR10; '
        f"CIFAR10('{data_dir.as_posix()}', download=True)\""
    )
    missing = [name for name in (*_TRAINING, *_TEST, _META) if not (folder / name).is_file()]
    if missing:
        raise BadInput(
            flag("dataset", "cifar10"),
            f"{folder} lacks {', '.join(missing)}",
            f"download with: {download}",
        )
    name = _META
    try:
        class_names = _class_names(_load(folder / name))
        pixels, labels = [], []
        for name in batches:
            batch = _batch(_load(folder / name))
            pixels.append(batch[0])
            labels += batch[1]
    except Exception as error:  # a damaged pickle may raise anything
        raise BadInput(
            flag("dataset", "cifar10"),
            f"{folder / name} is damaged or no CIFAR-10 file ({reason_of(error)})",
            f"delete it, then download with: {download}",
        ) from error
    whole = torch.from_numpy(np.concatenate(pixels)).reshape(-1, *SHAPE)
    return whole, torch.tensor(labels), class_names


def _load(path: Path) -> Any:
    data = read_whole(path, MOST_PICTURE_BYTES)
    _check_claims(data)
    return _Unpickler(io.BytesIO(data), encoding="latin1").load()


def _check_claims(data: bytes) -> None:
    """Reads a pickle without executing it: no length and no number in it may be too large.

    Raises:
        ValueError: the pickle is incomplete, or would take more memory than its size warrants.
    """
    for place, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if "PUT" in instruction.name and (argument is None or argument > place):
            raise ValueError(f"it numbers {place} objects up to {argument}")


def _class_names(content: Any) -> tuple[str, ...]:
    names = content["label_names"]
    if len(names) != NUM_CLASSES or not all(isinstance(name, str) for name in names):
        raise ValueError(f"label_names must be {NUM_CLASSES} texts")
    return tuple(names)


def _batch(content: Any) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], list[int]]:
    pixels, labels = content["data"].value, content["labels"]
    if pixels.shape != (len(labels), _PIXELS):
        raise ValueError(f"data must be uint8 of [{len(labels)}, {_PIXELS}] for that many labels")
    if not all(type(label) is int and 0 <= label < NUM_CLASSES for label in labels):
        raise ValueError(f"labels must be 0-{NUM_CLASSES - 1}")
    return pixels, labels


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
