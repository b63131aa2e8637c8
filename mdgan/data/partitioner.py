"""Base classes of a dataset file's `Partitioner`: labels at once, images on demand."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from mdgan.gan.labels import Known
from mdgan.samples.kinds import kind_of
from mdgan.samples.pictures.reading import PictureShape, Seen, look_at, pixels_to_float, read_image
from mdgan.storage.foreign_file import ends_of, read_whole


def group_of(name: str) -> int:
    """The number of a group, such as a patient: of the same name the same, wherever it is met."""
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Partitioner(ABC):
    """A data set on this machine's disk, ready to be divided and sampled."""

    labels: Tensor  # int64 [n], the class of each sample, in [0, number of classes)
    class_names: tuple[str, ...] = ()  # one name a class; empty if the classes have only numbers
    # int64 [n]; samples of one group, such as a patient, go to one worker. None if each stands for
    # itself.
    groups: Tensor | None = None
    # Whether each sample is read when it is drawn, by a reader that may be called from several
    # threads; then samples are read ahead.
    read_one_by_one: bool = False
    reads_files: ClassVar[bool] = True  # whether the data lie in the folder that the user names

    @abstractmethod
    def images(self, indices: Tensor) -> Tensor:
        """The samples at int64 [k] positions, float32 [k, *shape] in [−1, 1]."""

    def contents(self, indices: Tensor) -> list[bytes]:
        """What tells samples from others, by which an account of privacy knows them again.

        It must not depend on how a sample is named, labelled, sized or divided, nor on the time:
        the bytes of its pixels, uint8, or of its other values; those of its file where it has one.
        """
        return _contents(self.images(indices))

    @property
    def lies_in_files(self) -> bool:
        """Whether each sample lies in a file, or folder, of its own."""
        return isinstance(next(iter(getattr(self, "paths", ())), None), Path)

    def quick_contents(self, indices: Tensor) -> list[bytes]:
        """As `contents`, but files are not read wholly; by this a run knows its samples again."""
        if not self.lies_in_files:
            return self.contents(indices)
        paths: Sequence[Path] = getattr(self, "paths", ())
        return [ends_of(paths[index]) for index in indices.tolist()]

    def known(self, indices: Tensor) -> list[Known]:
        """By what an account of privacy knows each sample; those of equal content are one unit."""
        return [Known(content) for content in self.contents(indices)]

    def counts(self, indices: Tensor) -> Tensor:
        """What the samples at int64 [k] positions add to what all sites learn before training.

        Returns:
            int64, as many as the kind of sample has; see `SampleKind.num_counts`.
        """
        raise TypeError(f"{type(self).__name__} counts nothing in {len(indices)} samples")

    def class_counts(self, indices: Tensor) -> list[int]:
        """How many of some samples each class has, of all classes that the data have."""
        num_classes = int(self.labels.max()) + 1
        return torch.bincount(self.labels[indices], minlength=num_classes).tolist()

    def try_reading(self, index: int) -> Seen:
        """Reads one sample, says what it is and forgets it; raises anything if that fails."""
        self.images(torch.tensor([index]))
        return {}

    def __len__(self) -> int:
        return len(self.labels)


class InMemoryPartitioner(Partitioner):
    """A data set small enough to be held in memory as one tensor.

    A subclass defines `read`. Processes forked from the one that read it share the memory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._pixels, self.labels = _pair("read", "images [n, *shape]", self.read(data_dir))
        if len(self._pixels) != len(self.labels):
            raise ValueError(f"{len(self._pixels)} images but {len(self.labels)} labels")

    @abstractmethod
    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads all: images [n, *shape], uint8 or float32 in [−1, 1]; labels, int64 [n]."""

    def images(self, indices: Tensor) -> Tensor:
        chosen = self._pixels[indices]
        return pixels_to_float(chosen) if chosen.dtype == torch.uint8 else chosen

    @override
    def contents(self, indices: Tensor) -> list[bytes]:
        return _contents(self._pixels.index_select(0, indices))


class ImageFilesPartitioner(Partitioner):
    """A data set of picture files, each read when it is drawn.

    A subclass defines `find` and sets `shape`. Pictures that cannot be read are left out.
    """

    shape: PictureShape
    picture_bits: int | None = None  # of values that have more than 8; None for 16
    read_one_by_one = True

    def __init__(self, data_dir: Path) -> None:
        self.paths, self.labels = _pair("find", "n paths", self.find(data_dir))

    @abstractmethod
    def find(self, data_dir: Path) -> tuple[list[Path], Tensor]:
        """Lists the files of `--data-dir` in a fixed order: n paths, and labels, int64 [n]."""

    def images(self, indices: Tensor) -> Tensor:
        chosen = [self._image(self.paths[i]).numpy() for i in indices.tolist()]
        return torch.from_numpy(np.stack(chosen))  # numpy, for the reason that `read_image` gives

    def _image(self, path: Path) -> Tensor:
        return read_image(path, self.shape, self.picture_bits or 16)

    def contents(self, indices: Tensor) -> list[bytes]:
        return [read_whole(self.paths[i], None) for i in indices.tolist()]

    def try_reading(self, index: int) -> Seen:
        """Decodes one picture and says what it is; raises anything if it cannot be read."""
        return look_at(self.paths[index], self.shape, self.picture_bits or 16)


class NoSamples(Partitioner):
    """The data of a worker that trains without any."""

    labels = torch.empty(0, dtype=torch.int64)

    def images(self, indices: Tensor) -> Tensor:
        """Has none to give."""
        raise IndexError(f"{len(indices)} samples of a worker that holds none")


def _contents(samples: Tensor) -> list[bytes]:
    """What each sample is, given as pixels, uint8 in [0, 255], or as float in [−1, 1]."""
    if samples.dtype == torch.uint8:
        return [sample.tobytes() for sample in samples.numpy()]
    return kind_of(tuple(samples.shape[1:])).contents(samples)


def _pair(method: str, samples: str, given: object) -> tuple[Any, Tensor]:
    """Checks that a method gave samples and labels."""
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], Tensor):
        return given[0], given[1]
    parts = given if isinstance(given, tuple) else (given,)
    found = ", ".join(
        f"a tensor {list(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
        for part in parts
    )
    raise ValueError(
        f"{method} gives {found or 'nothing'}; it must return {samples} and labels, a tensor int64 "
        "[n] (zeros if there are no classes)"
    )
