"""CelebA: 202,599 faces, 178×218 RGB (Liu et al. 2015), shrunk and centre cropped to 64×64.

Workers train on torchvision's "train" and "valid" splits, 182,637 faces; its "test" split, 19,962
faces of other people, is held out.

This file reads `<data-dir>/celeba`, where torchvision puts the data; it downloads nothing, and
decodes every picture when it is drawn. The models are DCGANs (Darmanger and Gombas, appendix A.3).
The report lists no activations for them, and without any they would be linear. These have DCGAN's
activations (LeakyReLU 0.2 in D, ReLU in G, Tanh at its end), and no biases, like DCGAN.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchvision import datasets

from mdgan.data import ImageFilesPartitioner
from mdgan.errors import BadInput, reason_of
from mdgan.models import dcgan
from mdgan.spelling import flag

SHAPE = (3, 64, 64)
Z_DIM = 100
NUM_CLASSES = 2
DEFAULTS = {**dcgan.SUITED}

_PICTURES = "img_align_celeba"
_SPLITS = "list_eval_partition.txt"
_TRAIN, _VALID, _TEST = 0, 1, 2


class _Files(datasets.CelebA):  # type: ignore[misc]  # torchvision ships no types
    """torchvision's reader, for any files of this format, not only the official ones."""

    file_list: ClassVar = [(key, None, name) for key, _, name in datasets.CelebA.file_list]

    def _load_csv(self, filename: str, header: int | None = None) -> Any:
        """Reads one list, which must name the same pictures as the first, in the same order.

        torchvision joins the lists by position: a list that lacks lines would give faces the
        attributes of others, without an error.
        """
        try:
            table = super()._load_csv(filename, header)
        except Exception as error:
            raise ValueError(f"{filename}: {error}") from error
        first, expected = self.__dict__.setdefault("_first_list", (filename, table.index))
        if table.index != expected:
            raise ValueError(f"{filename} names other pictures than {first}")
        if filename == _SPLITS:
            self.splits: Tensor = table.data.flatten()
            if not self.splits.ge(_TRAIN).logical_and(self.splits.le(_TEST)).all():
                raise ValueError(f"{filename}: a split must be {_TRAIN}, {_VALID} or {_TEST}")
        return table


class _Faces(ImageFilesPartitioner):
    """The faces of some splits, in two classes by the attribute `Male`."""

    class_names = ("not male", "male")
    shape = SHAPE
    splits: tuple[int, ...]

    def find(self, data_dir: Path) -> tuple[list[Path], Tensor]:
        """Reads the lists, not yet the pictures.

        Args:
            data_dir: the folder that holds `celeba`.

        Returns:
            The n paths; labels, int64 [n], 0 or 1.

        Raises:
            BadInput: a list or a picture is missing, or a list is damaged.
        """
        folder = data_dir / _Files.base_folder
        pictures = folder / _PICTURES
        remedy = (
            "unpack img_align_celeba.zip and the five .txt lists of CelebA into "
            f"{folder}, or (needs gdown): "
            f'python -c "from torchvision.datasets import CelebA; '
            f"CelebA('{data_dir.as_posix()}', download=True)\""
        )
        lists = [name for _, _, name in _Files.file_list if name.endswith(".txt")]
        missing = [name for name in lists if not (folder / name).is_file()]
        if not pictures.is_dir():
            missing.append(f"{_PICTURES}/")
        if missing:
            raise BadInput(
                flag("dataset", "celeba"), f"{folder} lacks {', '.join(missing)}", remedy
            )
        try:
            files = _Files(root=data_dir, split="all", download=False)
            male = files.attr[:, files.attr_names.index("Male")]
            if not male.ge(0).logical_and(male.le(1)).all():
                raise ValueError("an attribute must be -1 or 1")
            chosen = torch.isin(files.splits, torch.tensor(self.splits))
        except Exception as error:  # torchvision may raise anything on damaged lists
            raise BadInput(
                flag("dataset", "celeba"),
                f"a list in {folder} is damaged ({reason_of(error)})",
                remedy,
            ) from error
        names = [files.filename[position] for position in chosen.nonzero().flatten().tolist()]
        present = {path.name for path in pictures.iterdir()}
        absent = [name for name in names if name not in present]
        if absent:
            raise BadInput(
                flag("dataset", "celeba"),
                f"{pictures} lacks {len(absent)} of {len(names)} pictures, first {absent[0]}",
                remedy,
            )
        return [pictures / name for name in names], male[chosen]


class Partitioner(_Faces):
    """The faces that are not held out, in two classes by the attribute `Male`."""

    splits = (_TRAIN, _VALID)


class HeldOut(_Faces):
    """The "test" split, faces of other people; no worker trains on them."""

    splits = (_TEST,)


class Generator(nn.Sequential):
    """z of 100 → 512×4×4 → 256×8×8 → 128×16×16 → 64×32×32 → 3×64×64 in [−1, 1]."""

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
            nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )


class Discriminator(nn.Sequential):
    """3×64×64 → 64×32×32 → 128×16×16 → 256×8×8 → 512×4×4 → one logit."""

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
            nn.Conv2d(256, 512, 4, 2, 1, bias=False),
            nn.BatchNorm2d(512),
            nn.LeakyReLU(0.2),
            nn.Conv2d(512, 1, 4, 1, 0, bias=False),
            nn.Flatten(),
        )
