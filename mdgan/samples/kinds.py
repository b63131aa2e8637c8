"""Kinds of samples that are tensors: pictures, series and volumes, which it draws, and others."""

import io
from abc import abstractmethod
from collections.abc import Mapping
from math import ceil, sqrt
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor, nn

from mdgan.errors import BadInput
from mdgan.gan.labels import num_classes_of
from mdgan.gan.sampling import draw_samples
from mdgan.samples.contract import SampleKind, Shape, Writer, npz_of
from mdgan.samples.pictures.reading import float_to_pixels, pixels_to_float
from mdgan.settings.declare import suggest
from mdgan.settings.plugins import SAMPLES, installed, load

_LEAST_SIDE_PIXELS = 48
_BACKGROUND = 32
_BORDER = 2
_WIDTH, _HEIGHT = 160, 80
_FINER = 2  # curves are drawn this many times as large, and shrunk to smooth them
_PAPER, _AXIS = (250, 250, 248), (205, 205, 200)
_INKS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))
"""Okabe and Ito's colours, in turn."""
_COLOURS = 3
_EMPTY = -0.75
_NUM_SAMPLES = 64
_MOST_ROWS, _OF_A_CLASS = 16, 10


class Tensors(SampleKind):
    """Samples of any shape, which mdgan writes as arrays and does not draw."""

    name: ClassVar[str] = "tensors"

    def why_not(self, shape: Shape) -> str:
        del shape
        return ""


class SeenTensors(Tensors):
    """Samples that mdgan draws as pictures."""

    is_seen: ClassVar[bool] = True

    sizes: ClassVar[tuple[str, ...]]  # the names of a sample's sizes

    def why_not(self, shape: Shape) -> str:
        number = {2: "two", 3: "three", 4: "four"}[len(self.sizes)]
        why = f"{self.name} have {number} sizes, ({', '.join(self.sizes)})"
        return "" if len(shape) == len(self.sizes) else why

    @abstractmethod
    def pictures(self, samples: Tensor) -> Tensor:
        """Draws a picture of each sample, float [n, 1 or 3, H, W] in [−1, 1]."""

    def writers(self) -> Mapping[str, Writer]:
        """Writes arrays, or a grid of pictures."""
        return {**super().writers(), ".png": lambda samples, _: self.png(samples)}

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        return grid_png(self.pictures(samples), columns)

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        return class_grid_png(self.pictures(samples), labels)


class Pictures(SeenTensors):
    """Pictures [C, H, W]. Two are the same if their pixels, rounded to 8 bits, are."""

    name: ClassVar[str] = "pictures"
    sizes: ClassVar[tuple[str, ...]] = ("channels", "height", "width")

    def pictures(self, samples: Tensor) -> Tensor:
        return samples

    def contents(self, samples: Tensor) -> list[bytes]:
        """The pixels of each picture, uint8."""
        return [picture.tobytes() for picture in float_to_pixels(samples).numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """Writes a grid, with a row for each class; or arrays."""
        return {".png": self._written_png, ".npz": npz_of}

    def _written_png(self, samples: Tensor, labels: Tensor | None) -> bytes:
        if labels is None or bool((labels == labels[0]).all()):
            return self.png(samples)
        return self.class_png(samples, labels)


class Series(SeenTensors):
    """Series [C, T], such as an ECG of C leads; drawn as one curve for each channel."""

    name: ClassVar[str] = "series"
    sizes: ClassVar[tuple[str, ...]] = ("channels", "length")

    def pictures(self, samples: Tensor) -> Tensor:
        """Draws curves, [n, 3, 80, 160]."""
        return torch.stack([_drawn(one) for one in samples])


def _drawn(series: Tensor) -> Tensor:
    width, height = _FINER * _WIDTH, _FINER * _HEIGHT
    picture = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(picture)
    draw.line([(0, height / 2), (width, height / 2)], fill=_AXIS, width=_FINER)
    length = series.shape[1]
    x = [width * (step + 0.5) / length for step in range(length)]
    for channel, values in enumerate(series.clamp(-1, 1)):
        y = (height * (0.5 - 0.47 * values)).tolist()
        ink = _INKS[channel % len(_INKS)]
        draw.line(list(zip(x, y, strict=True)), fill=ink, width=_FINER, joint="curve")
    small = picture.resize((_WIDTH, _HEIGHT), Image.Resampling.BOX)
    return pixels_to_float(torch.from_numpy(np.array(small)).permute(2, 0, 1))


class Volumes(SeenTensors):
    """Volumes [C, D, H, W], such as a CT or MR scan; drawn as their middle slices."""

    name: ClassVar[str] = "volumes"
    sizes: ClassVar[tuple[str, ...]] = ("channels", "depth", "height", "width")
    most_scored: ClassVar[int] = 1000

    def pictures(self, samples: Tensor) -> Tensor:
        """Draws the middle slices along depth, height and width side by side.

        Of volumes with other than 1 or 3 channels, it draws the first channel.
        """
        if samples.shape[1] not in (1, _COLOURS):
            samples = samples[:, :1]
        depth, height, width = (size // 2 for size in samples.shape[2:])
        slices = [samples[:, :, depth], samples[:, :, :, height], samples[..., width]]
        tallest = max(one.shape[-2] for one in slices)
        padded = [F.pad(one, (0, 0, 0, tallest - one.shape[-2]), value=_EMPTY) for one in slices]
        return torch.cat(padded, dim=-1)


def grid_png(images: Tensor, columns: int | None = None) -> bytes:
    """Draws a grid of float [n, C, H, W] in [−1, 1] as PNG; small images enlarged, not smoothed."""
    factor = max(1, ceil(_LEAST_SIDE_PIXELS / max(images.shape[-2:])))
    pixels = float_to_pixels(images)
    pixels = pixels.repeat_interleave(factor, dim=-2).repeat_interleave(factor, dim=-1)
    if pixels.shape[1] == 1:
        pixels = pixels.expand(-1, 3, -1, -1)
    grid = _grid(pixels, min(columns or ceil(sqrt(len(images))), len(images)))
    buffer = io.BytesIO()
    Image.fromarray(grid.permute(1, 2, 0).numpy()).save(buffer, format="PNG")
    return buffer.getvalue()


def _grid(pixels: Tensor, columns: int) -> Tensor:
    """Images, [n, C, H, W], in rows with a border around each; one alone has none: [C, H', W']."""
    if len(pixels) == 1:
        return pixels[0]
    empty = -len(pixels) % columns
    framed = F.pad(pixels, (_BORDER, 0, _BORDER, 0, 0, 0, 0, empty), value=_BACKGROUND)
    rows = torch.cat([torch.cat([*row], dim=-1) for row in torch.split(framed, columns)], dim=-2)
    return F.pad(rows, (0, _BORDER, 0, _BORDER), value=_BACKGROUND)


def class_grid_png(images: Tensor, labels: Tensor) -> bytes:
    """Draws a grid with a row for each class of `labels`, int64 [n], the lowest class first."""
    counts = torch.bincount(labels)
    columns = int(counts.max())
    empty = torch.full_like(images[:1], _BACKGROUND / 127.5 - 1).expand(columns, *images.shape[1:])
    rows = [
        torch.cat([images[labels == c], empty])[:columns] for c in range(len(counts)) if counts[c]
    ]
    return grid_png(torch.cat(rows), columns)


TENSORS, SERIES, PICTURES, VOLUMES = Tensors(), Series(), Pictures(), Volumes()
_KINDS: dict[int, SampleKind] = {2: SERIES, 3: PICTURES, 4: VOLUMES}


def kind_of(shape: Shape) -> SampleKind:
    """Finds the kind by the number of sizes: series 2, pictures 3, volumes 4, else tensors."""
    return _KINDS.get(len(shape), TENSORS)


def kind_named(name: str) -> SampleKind:
    """Finds a kind of mdgan's or of an installed package by its name; BadInput if there is none."""
    builtin = {kind.name: kind for kind in (*_KINDS.values(), TENSORS)}
    if name in builtin:
        return builtin[name]
    if name not in installed(SAMPLES):
        known = (*builtin, *installed(SAMPLES))
        raise BadInput(name, f"must be one of {', '.join(known)}{suggest(name, known)}")
    return load(SAMPLES, name, SampleKind)  # type: ignore[type-abstract] # an object of a subclass


def usual_picture(
    kind: SampleKind, generator: nn.Module, z_dim: int, seed: int
) -> tuple[bytes | None, int]:
    """Draws 64 samples, or 10 of each class (of up to 16 classes) if G is conditional.

    Returns:
        A PNG file, None if mdgan cannot draw such samples; and how many samples are in it.
    """
    if not kind.is_seen:
        return None, 0
    num_classes = num_classes_of(generator)
    if num_classes is None:
        return kind.png(draw_samples(generator, _NUM_SAMPLES, z_dim, seed=seed)), _NUM_SAMPLES
    num_rows = min(num_classes, _MOST_ROWS)
    classes = torch.arange(num_rows) * num_classes // num_rows
    labels = classes.repeat_interleave(_OF_A_CLASS)
    samples = draw_samples(generator, len(labels), z_dim, seed=seed, labels=labels)
    return kind.class_png(samples, labels), len(labels)
