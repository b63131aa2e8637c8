"""Writes pictures from installed and fetched packages as files of MNIST and CIFAR-10.

Some sources are for choosing settings (`is_for_choosing`). The others only judge them: no setting
may be chosen by their scores.
"""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from sklearn.datasets import load_digits, load_sample_image
from torch import Tensor
from torch.nn import functional as F

from benchmarks import picture_packages

NUM_TRAINING, NUM_TEST = 10_000, 2_000
NUM_CLASSES = 10
_SIDE = 28
_FONTS = [
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "cmr10",
    "cmss10",
    "cmtt10",
]
_LETTERS = "ABDEFGHKRS"

Bytes = npt.NDArray[np.uint8]


class Pictures(NamedTuple):
    """Training samples and, after them, test samples."""

    pixels: Bytes
    """[n, C, H, W] in [0, 255]."""
    labels: Bytes
    """[n], 0-9."""

    def divided(self) -> tuple["Pictures", "Pictures"]:
        """The training samples, and the test samples."""
        pixels, labels = self
        first = Pictures(pixels[:NUM_TRAINING], labels[:NUM_TRAINING])
        return first, Pictures(pixels[NUM_TRAINING:], labels[NUM_TRAINING:])


class Source(NamedTuple):
    """A source of pictures: the dataset file that reads them, and whether they choose settings."""

    dataset: str
    make: Callable[[], Pictures]
    is_for_choosing: bool


def _handwriting() -> Pictures:
    """Digits of scikit-learn: enlarged, turned, moved, with thinner or thicker strokes.

    The test samples are of other digits than the training samples.
    """
    digits = load_digits()
    random = np.random.default_rng(0)
    order = random.permutation(len(digits.images))
    test, training = np.split(order, [len(order) // 6])
    chosen = np.concatenate([random.choice(training, NUM_TRAINING), random.choice(test, NUM_TEST)])
    small = torch.tensor(digits.images[chosen] / 16, dtype=torch.float32)[:, None]
    large = F.interpolate(small, (24, 24), mode="bicubic").clamp(0, 1)
    distorted = _distorted(F.pad(large, (2, 2, 2, 2)), random, most_degrees=12, most_pixels=2)
    # Sharpens the edges of strokes: a digit of MNIST has few grey pixels.
    edge = torch.tensor(random.uniform(0.3, 0.6, (len(chosen), 1, 1, 1)), dtype=torch.float32)
    strokes = ((distorted - edge) * 4 + 0.5).clamp(0, 1)
    return Pictures(_bytes(strokes), digits.target[chosen].astype(np.uint8))


def _letters() -> Pictures:
    """Ten letters in fourteen fonts of Matplotlib, of several sizes, turned, moved and slanted."""
    random = np.random.default_rng(1)
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    labels = random.integers(0, NUM_CLASSES, NUM_TRAINING + NUM_TEST)
    drawn = np.empty((len(labels), 1, _SIDE, _SIDE), np.uint8)
    fonts = {
        (name, size): ImageFont.truetype(str(folder / f"{name}.ttf"), size)
        for name in _FONTS
        for size in range(18, 25)
    }
    names = random.choice(np.array(_FONTS), len(labels))
    sizes = random.integers(18, 25, len(labels))
    for place, label in enumerate(labels):
        picture = Image.new("L", (_SIDE, _SIDE))
        font = fonts[str(names[place]), int(sizes[place])]
        ImageDraw.Draw(picture).text((14, 14), _LETTERS[label], 255, font, anchor="mm")
        drawn[place, 0] = np.asarray(picture)
    whole = torch.tensor(drawn, dtype=torch.float32) / 255
    distorted = _distorted(whole, random, most_degrees=15, most_pixels=2)
    return Pictures(_bytes(distorted), labels.astype(np.uint8))


def _portrait() -> Pictures:
    """Pieces of Matplotlib's photograph of Grace Hopper."""
    with Image.open(Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg") as read:
        return _pieces(read.convert("RGB"), 4)


def _photograph(name: str) -> Image.Image:
    return Image.fromarray(load_sample_image(name))


def _pieces(whole: Image.Image, seed: int) -> Pictures:
    """Pieces of a photograph at half its size, half of them mirrored; ten bands are the classes."""
    random = np.random.default_rng(seed)
    half = np.asarray(whole.resize((whole.width // 2, whole.height // 2), Image.Resampling.BOX))
    count = NUM_TRAINING + NUM_TEST
    tops = random.integers(0, half.shape[0] - 31, count)
    lefts = random.integers(0, half.shape[1] - 31, count)
    pieces = np.stack(
        [half[top : top + 32, left : left + 32] for top, left in zip(tops, lefts, strict=True)]
    )
    turned = random.random(count) < 0.5
    pieces[turned] = pieces[turned][:, :, ::-1]
    labels = tops * NUM_CLASSES // (half.shape[0] - 31)
    return Pictures(np.ascontiguousarray(pieces.transpose(0, 3, 1, 2)), labels.astype(np.uint8))


def _real(read: Callable[[int, int], tuple[Bytes, Bytes]]) -> Pictures:
    return Pictures(*read(NUM_TRAINING, NUM_TEST))


SOURCES = {
    "handwriting": Source("mnist", _handwriting, True),
    "portrait": Source("cifar10", _portrait, True),
    "china": Source("cifar10", lambda: _pieces(_photograph("china.jpg"), 2), True),
    "letters": Source("mnist", _letters, True),
    "flower": Source("cifar10", lambda: _pieces(_photograph("flower.jpg"), 3), False),
    "mnist": Source("mnist", lambda: _real(picture_packages.mnist), True),
    "fashion": Source("mnist", lambda: _real(picture_packages.fashion), False),
    "cifar10": Source("cifar10", lambda: _real(picture_packages.cifar10), False),
}


def write(name: str, folder: Path) -> None:
    """Writes a source's files below a folder, where its dataset file reads them."""
    source = SOURCES[name]
    written = _write_mnist if source.dataset == "mnist" else _write_cifar10
    written(*source.make().divided(), folder)


def write_as_folder(name: str, folder: Path) -> None:
    """Writes a source's pictures, half as large, as PNG files below `training` and `held-out`.

    They are 16×16, and grey ones get black borders. Each class has a folder.
    """
    parts = zip(("training", "held-out"), SOURCES[name].make().divided(), strict=True)
    for part, pictures in parts:
        for label in range(NUM_CLASSES):
            (folder / part / str(label)).mkdir(parents=True)
        for number, (pixels, label) in enumerate(zip(*pictures, strict=True)):
            whole = Image.fromarray(np.squeeze(pixels.transpose(1, 2, 0)))
            square = ImageOps.expand(whole, (32 - whole.width) // 2)
            square.reduce(2).save(folder / part / str(label) / f"{number:05}.png")


def _distorted(
    pictures: Tensor, random: np.random.Generator, most_degrees: float, most_pixels: float
) -> Tensor:
    """Each turned, slanted, made larger or smaller by a tenth, and moved."""
    count, side = len(pictures), pictures.shape[-1]
    turn = np.radians(random.uniform(-most_degrees, most_degrees, count))
    slant = random.uniform(-0.15, 0.15, count)
    scale = random.uniform(0.9, 1.1, (2, count))
    moved = random.uniform(-most_pixels, most_pixels, (count, 2)) * 2 / side
    rows = np.empty((count, 2, 3))
    rows[:, 0, 0], rows[:, 0, 1] = scale[0] * np.cos(turn), slant - np.sin(turn)
    rows[:, 1, 0], rows[:, 1, 1] = np.sin(turn), scale[1] * np.cos(turn)
    rows[:, :, 2] = moved
    grid = F.affine_grid(
        torch.tensor(rows, dtype=torch.float32), list(pictures.shape), align_corners=False
    )
    return F.grid_sample(pictures, grid, align_corners=False).clamp(0, 1)


def _bytes(pictures: Tensor) -> Bytes:
    return (pictures * 255).round().to(torch.uint8).numpy()


def _write_mnist(training: Pictures, test: Pictures, folder: Path) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for prefix, part in (("train", training), ("t10k", test)):
        for suffix, values in ("images-idx3", part.pixels[:, 0]), ("labels-idx1", part.labels):
            header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            (raw / f"{prefix}-{suffix}-ubyte").write_bytes(header + values.tobytes())


def _write_cifar10(training: Pictures, test: Pictures, folder: Path) -> None:
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True, exist_ok=True)
    parts = {"test_batch": test}
    for number, places in enumerate(np.array_split(np.arange(NUM_TRAINING), 5), start=1):
        parts[f"data_batch_{number}"] = Pictures(training.pixels[places], training.labels[places])
    for name, part in parts.items():
        content = {
            "data": part.pixels.reshape(len(part.labels), -1),
            "labels": part.labels.tolist(),
        }
        (batches / name).write_bytes(pickle.dumps(content, protocol=2))
    names = {"label_names": [f"band {number}" for number in range(NUM_CLASSES)]}
    (batches / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
