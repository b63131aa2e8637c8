"""CelebA: 202,599 faces, 178×218 RGB (Liu et al. 2015), here 64×64: shrunk, centre cropped.

Workers train on torchvision's "train" and "valid" splits, 182,637 faces; its "test" split, 19,962
faces of other people, is held out.

Read from `<data-dir>/celeba`, where torchvision puts it; nothing is downloaded here, and every
picture is decoded when it is drawn. The models are DCGANs (Darmanger and Gombas, appendix A.3). The
report lists no activations for them, and without any they would be linear: these have DCGAN's
(LeakyReLU 0.2 in D, ReLU in G, Tanh at its end), and no biases, as DCGAN.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchvision import datasets

from mdgan.data import Partitioner as Base
from mdgan.data import read_image
from mdgan.errors import BadInput

SHAPE = (3, 64, 64)
Z_DIM = 100

_PICTURES = "img_align_celeba"
_SPLITS = "list_eval_partition.txt"
_TRAIN, _VALID, _TEST = 0, 1, 2


class _Files(datasets.CelebA):  # type: ignore[misc]  # torchvision ships no types
    """torchvision's reader, for any files of this format and not only the official ones."""

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


class _Faces(Base):
    """The faces of some splits, in two classes by the attribute `Male`."""

    class_names = ("not male", "male")
    splits: tuple[int, ...]

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
            self._files = _Files(root=data_dir, split="all", download=False)
            male = self._files.attr[:, self._files.attr_names.index("Male")]
            if not male.ge(0).logical_and(male.le(1)).all():
                raise ValueError("an attribute must be -1 or 1")
            chosen = torch.isin(self._files.splits, torch.tensor(self.splits))
        except Exception as error:  # torchvision may raise anything on damaged lists
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BadInput(
                f"--dataset celeba: a list in {self._folder} is damaged ({reason}); {self._remedy}"
            ) from error
        self._positions = chosen.nonzero().squeeze(1)
        self.labels = male[chosen]
        self._check_complete()

    def _check_complete(self) -> None:
        present = {path.name for path in (self._folder / _PICTURES).iterdir()}
        names = [self._files.filename[position] for position in self._positions.tolist()]
        missing = [name for name in names if name not in present]
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
        names = [self._files.filename[position] for position in self._positions[indices].tolist()]
        return torch.stack([read_image(self._folder / _PICTURES / name, SHAPE) for name in names])


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
