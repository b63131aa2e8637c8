"""ImageNet 2012, 1,000 classes at 128×128, as ParaGAN trains it; also FeGAN's 200 of its classes.

Read from `<data-dir>/train` and `<data-dir>/val`, a folder for each class.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from mdgan.data import ImageFilesPartitioner
from mdgan.errors import BadInput
from mdgan.spelling import flag

SHAPE = (3, 128, 128)
Z_DIM = 100
NUM_CLASSES = 1000
DEFAULTS = {"architecture": "biggan"}


class Partitioner(ImageFilesPartitioner):
    """The pictures to train on, with the numbers of their folders as classes."""

    shape = SHAPE
    folder = "train"

    def find(self, data_dir: Path) -> tuple[list[Path], Tensor]:
        """Lists the pictures, class by class, sorted by path."""
        classes = sorted(path for path in (data_dir / self.folder).glob("*") if path.is_dir())
        if not 0 < len(classes) <= NUM_CLASSES:
            raise BadInput(
                flag("data_dir", data_dir),
                f"{self.folder} has {len(classes)} folders of classes, expected 1 to {NUM_CLASSES}",
            )
        pictures = [sorted(each.glob("*.JPEG")) for each in classes]
        labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([*map(len, pictures)]))
        return [path for each in pictures for path in each], labels


class HeldOut(Partitioner):
    """The validation set."""

    folder = "val"


class Generator(nn.Sequential):
    """None of its own: name an architecture."""


class Discriminator(nn.Sequential):
    """None of its own: name an architecture."""
