"""CelebA: 202,599 faces, 178×218 RGB (Liu et al. 2015), here 64×64: shrunk, centre cropped.

Read from `<data-dir>/celeba`, where torchvision puts it; nothing is downloaded here, and every
picture is decoded when it is drawn. The models are DCGANs (Darmanger and Gombas, appendix A.3). The
report lists no activations for them, and without any they would be linear: these have DCGAN's
(LeakyReLU 0.2 in D, ReLU in G, Tanh at its end), and no biases, as DCGAN.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import datasets

from mdgan.data import Partitioner as Base
from mdgan.data import image_to_tensor
from mdgan.errors import BadInput

SHAPE = (3, 64, 64)
Z_DIM = 100

_PICTURES = "img_align_celeba"


class _Files(datasets.CelebA):  # type: ignore[misc]  # torchvision ships no types
    """torchvision's reader for any files of this format, not only the official ones."""

    file_list: ClassVar = [(key, None, name) for key, _, name in datasets.CelebA.file_list]

    def _load_csv(self, filename: str, header: int | None = None) -> Any:
        """Reads one list, which must name the same pictures as the first, in the same order.

        The reader joins its lists by position: a cut one would shift the attributes unseen.
        """
        try:
            table = super()._load_csv(filename, header)
        except Exception as error:
            raise ValueError(f"{filename}: {error}") from error
        first, expected = self.__dict__.setdefault("_first_list", (filename, table.index))
        if table.index != expected:
            raise ValueError(f"{filename} names other pictures than {first}")
        return table


class Partitioner(Base):
    """All faces, in two classes by the attribute `Male`."""

    class_names = ("not male", "male")

    def __init__(self, data_dir: Path) -> None:
        """Reads the lists, not yet the pictures.

        Args:
            data_dir: the folder that holds `celeba`.

        Raises:
            BadInput: a list or a picture is missing, or a list is damaged.
        """
        self._folder = data_dir / _Files.base_folder
        self._remedy = (
            "unpack img_align_celeba.zip and the five .txt lists of CelebA into "
            f"{self._folder}, or (needs gdown): "
            f'python -c "from torchvision.datasets import CelebA; '
            f"CelebA('{data_dir.as_posix()}', download=True)\""
        )
        lists = [name for _, _, name in _Files.file_list if name.endswith(".txt")]
        missing = [name for name in lists if not (self._folder / name).is_file()]
        if not (self._folder / _PICTURES).is_dir():
            missing.append(f"{_PICTURES}/")
        if missing:
            raise BadInput(
                f"--dataset celeba: {self._folder} lacks {', '.join(missing)}; {self._remedy}"
            )
        try:
            self._files = _Files(root=data_dir, split="all", transform=_shrink, download=False)
            male = self._files.attr[:, self._files.attr_names.index("Male")]
            if not male.ge(0).logical_and(male.le(1)).all():
                raise ValueError("an attribute must be -1 or 1")
        except Exception as error:  # the reader indexes and converts whatever it finds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BadInput(
                f"--dataset celeba: a list in {self._folder} is damaged ({reason}); {self._remedy}"
            ) from error
        self.labels = male.clone()  # a view would keep the other 39 attributes in memory
        self._check_complete()

    def _check_complete(self) -> None:
        present = {path.name for path in (self._folder / _PICTURES).iterdir()}
        missing = [name for name in self._files.filename if name not in present]
        if missing:
            raise BadInput(
                f"--dataset celeba: {self._folder / _PICTURES} lacks {len(missing)} of "
                f"{len(self)} pictures, first {missing[0]}; {self._remedy}"
            )

    def images(self, indices: Tensor) -> Tensor:
        """Decodes the faces at some positions.

        Args:
            indices: int64 [k] in [0, n).

        Returns:
            float32 [k, 3, 64, 64] in [−1, 1].

        Raises:
            BadInput: a picture is gone or cannot be decoded.
        """
        return torch.stack([self._decode(index) for index in indices.tolist()])

    def _decode(self, index: int) -> Tensor:
        try:
            image: Tensor = self._files[index][0]
        except Exception as error:  # whatever a decoder raises, the user gets the file's name
            path = self._folder / _PICTURES / self._files.filename[index]
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BadInput(f"{path}: cannot read this picture ({reason}); restore it") from error
        return image


def _shrink(picture: Image.Image) -> Tensor:
    with picture:  # the reader leaves the file open
        return image_to_tensor(picture, SHAPE)


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
