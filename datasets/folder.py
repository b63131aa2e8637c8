"""Any folder of pictures, for a worker's own private data; each is read when it is drawn.

Pictures of any size lie in `--data-dir` or below it. They are scaled to SHAPE, or to
`--set image_size=SIDE`, and centre cropped. For grey, copy this file into your `--datasets-dir` and
change SHAPE to (1, H, W). H = W = 4·2^k, since the models are DCGANs (Radford et al. 2016), whose
layers double and halve.

Every worker has its own data: give each its folder, `--data-dir 'photos/{rank}'`. If all workers
are on one machine, they can divide one folder.
"""

from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from PIL import Image
from torch import nn

from mdgan.data.dataset_file import PreparedData
from mdgan.data.picture_folder import PictureFolder
from mdgan.data.settings import DataSettings
from mdgan.models import dcgan
from mdgan.samples.kinds import PICTURES

Shape = tuple[int, int, int]

SHAPE: Shape = (3, 64, 64)
Z_DIM = 100
DEFAULTS = {**dcgan.SUITED, "partition": "none"}

_LOOKED_AT = 200


class Partitioner(PictureFolder):
    """Pictures and their classes: each subfolder of the data folder is one, in sorted order."""

    def __init__(self, data_dir: Path, shape: Shape = SHAPE) -> None:
        super().__init__(data_dir, shape)


def prepare(settings: DataSettings) -> PreparedData:
    """Prepares pictures and models of the size that the settings name, else of SHAPE."""
    side = settings.image_size
    shape = SHAPE if side is None else (SHAPE[0], side, side)
    models = Z_DIM, partial(Generator, shape), partial(Discriminator, shape)
    return PreparedData(shape, PICTURES, partial(Partitioner, shape=shape), models=models)


def usual_size(data_dir: Path) -> int:
    """The least side, 8, 16, … up to that of SHAPE, to which no usual picture need be shrunk."""
    paths = Partitioner(data_dir).paths
    sides = []
    for path in paths[:: 1 + len(paths) // _LOOKED_AT]:
        with suppress(OSError, Image.DecompressionBombError), Image.open(path) as picture:
            sides.append(min(picture.size))
    usual = median(sides) if sides else SHAPE[1]
    return next((8 << k for k in range(8) if usual <= 8 << k < SHAPE[1]), SHAPE[1])


def _widths(shape: Shape) -> list[int]:
    """The channels of D's layers from the picture inwards: 64, 128, … up to 512, k of them.

    Raises:
        ValueError: the models cannot be built for this shape.
    """
    channels, height, width = shape
    doublings = (height // 4).bit_length() - 1
    if channels not in (1, 3) or height != width or doublings < 1 or height != 4 * 2**doublings:
        raise ValueError(
            f"SHAPE = {shape}: must be (1 or 3, H, W) with H = W one of 8, 16, 32, 64, 128, …"
        )
    return [min(512, 64 * 2**layer) for layer in range(doublings)]


_widths(SHAPE)


class Generator(nn.Sequential):
    """z of 100 → 4×4 → doubled until H×W, in [−1, 1]; for 64×64 the same as CelebA's."""

    def __init__(self, shape: Shape = SHAPE) -> None:
        widths = _widths(shape)
        layers: list[nn.Module] = [
            nn.Unflatten(1, (Z_DIM, 1, 1)),
            nn.ConvTranspose2d(Z_DIM, widths[-1], 4, 1, 0, bias=False),
        ]
        for wide, narrow in pairwise(reversed(widths)):
            layers += [
                nn.BatchNorm2d(wide),
                nn.ReLU(),
                nn.ConvTranspose2d(wide, narrow, 4, 2, 1, bias=False),
            ]
        super().__init__(
            *layers,
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
            nn.ConvTranspose2d(widths[0], shape[0], 4, 2, 1, bias=False),
            nn.Tanh(),
        )


class Discriminator(nn.Sequential):
    """H×W → halved until 4×4 → one logit; for 64×64 the same as CelebA's."""

    def __init__(self, shape: Shape = SHAPE) -> None:
        widths = _widths(shape)
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], widths[0], 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
        ]
        for narrow, wide in pairwise(widths):
            layers += [
                nn.Conv2d(narrow, wide, 4, 2, 1, bias=False),
                nn.BatchNorm2d(wide),
                nn.LeakyReLU(0.2),
            ]
        super().__init__(*layers, nn.Conv2d(widths[-1], 1, 4, 1, 0, bias=False), nn.Flatten())
