"""Feeds arbitrary bytes to the readers of data sets."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import torch

from mdgan.data.dataset_file import load, load_path
from mdgan.errors import BadInput
from mdgan.models.check import check_models
from tests.fuzz.config_files import refused_in_one_line
from tests.unit.dataset_formats import write_celeba, write_cifar10, write_image_folder, write_mnist

NUM_SAMPLES = 6
FILES = {
    "mnist": [
        f"MNIST/raw/{part}-{kind}-ubyte"
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ],
    "cifar10": [
        f"cifar-10-batches-py/{name}" for name in ("data_batch_2", "test_batch", "batches.meta")
    ],
    "celeba": [
        *(f"celeba/list_{kind}.txt" for kind in ("eval_partition", "attr_celeba", "bbox_celeba")),
        *("celeba/list_landmarks_align_celeba.txt", "celeba/identity_CelebA.txt"),
        "celeba/img_align_celeba/000002.jpg",
    ],
    "folder": ["cats/0001.png"],
}


@cache
def whole(name: str) -> Path:
    """The folder of a small data set, written once."""
    folder = Path(mkdtemp(prefix="mdgan-fuzz-"))
    if name == "folder":
        write_image_folder(folder, ["cats", "dogs"], NUM_SAMPLES // 2, size=8)
    else:
        {"mnist": write_mnist, "cifar10": write_cifar10, "celeba": write_celeba}[name](
            folder, NUM_SAMPLES
        )
    return folder


@contextmanager
def damaged(name: str, file: str, data: bytes) -> Iterator[Path]:
    """A copy of a data set with other contents in one of its files."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        shutil.copytree(whole(name), path, copy_function=os.link)
        (path / file).unlink()
        (path / file).write_bytes(data)
        yield path


def read(name: str, file: str, data: bytes) -> None:
    """Reads every sample of a data set with other contents in one file."""
    dataset = load(name, None)
    with damaged(name, file, data) as path:
        for held_out in (False, True)[: 1 + (dataset.held_out is not None)]:
            with refused_in_one_line():
                source = (dataset.open_held_out if held_out else dataset.open)(path)
                images = source.images(torch.arange(len(source)))
                assert images.shape == (len(source), *dataset.shape)
                assert images.dtype == torch.float32
                assert images.abs().max() <= 1


def _read_any(name: str, data: bytes) -> None:
    files = FILES[name]
    read(name, files[(data[0] if data else 0) % len(files)], data[1:])


# The first byte says in which file of the data set the others are.
read_any_mnist = partial(_read_any, "mnist")
read_any_cifar10 = partial(_read_any, "cifar10")
read_any_celeba = partial(_read_any, "celeba")


def read_any_picture(data: bytes) -> None:
    """Reads a folder of pictures, one of which has these bytes."""
    _read_any("folder", b"\0" + data)


def load_file(text: bytes) -> None:
    """Loads these bytes as a dataset file, and reads its data."""
    with TemporaryDirectory() as folder, refused_in_one_line():
        path = Path(folder) / "mine.py"
        path.write_bytes(text)
        dataset = load_path(path)
        check_models(dataset.models)
        source = dataset.open(Path(folder))
        source.images(torch.arange(len(source)))


def refusal(name: str, file: str, data: bytes) -> str:
    """The refusal of a data set with other contents in one file."""
    with damaged(name, file, data) as path:
        try:
            source = load(name, None).open(path, strict=True)
            source.images(torch.arange(len(source)))
        except BadInput as error:
            return str(error)
    return ""
