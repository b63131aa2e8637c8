"""Base classes for a dataset file's `Partitioner`: all labels at once, images on demand."""

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
    """The number of a group, such as a patient; equal names have equal numbers on all machines."""
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Partitioner(ABC):
    """A data set on this machine's disk, ready to be divided and sampled."""

    labels: Tensor  # int64 [n], the class of each sample, in [0, number of classes)
    class_names: tuple[str, ...] = ()  # one name a class; empty if the classes have only numbers
    # int64 [n]; samples of one group, such as a patient, go to one worker. None without groups.
    groups: Tensor | None = None
    # Whether `images` reads each sample when it is drawn, and may be called from several threads;
    # then threads read samples ahead.
    read_one_by_one: bool = False
    reads_files: ClassVar[bool] = True  # whether the data lie in the folder that the user names

    @abstractmethod
    def images(self, indices: Tensor) -> Tensor:
        """The samples at int64 [k] positions, float32 [k, *shape] in [−1, 1]."""

    def contents(self, indices: Tensor) -> list[bytes]:
        """The bytes by which an account of privacy recognises each sample.

        They must not depend on a sample's name, label, size or place, nor on the time: the bytes of
        its file if it has one, else those of its pixels, uint8, or of its other values.
        """
        return _contents(self.images(indices))

    @property
    def lies_in_files(self) -> bool:
        """Whether each sample lies in a file, or folder, of its own."""
        return isinstance(next(iter(getattr(self, "paths", ())), None), Path)

    def quick_contents(self, indices: Tensor) -> list[bytes]:
        """As `contents`, but without reading whole files; a run recognises its samples by this."""
        if not self.lies_in_files:
            return self.contents(indices)
        paths: Sequence[Path] = getattr(self, "paths", ())
        return [ends_of(paths[index]) for index in indices.tolist()]

    def known(self, indices: Tensor) -> list[Known]:
        """How an account of privacy recognises each sample; those of equal content are one unit."""
        return [Known(content) for content in self.contents(indices)]

    def counts(self, indices: Tensor) -> Tensor:
        """The counts of the samples at int64 [k] positions, which all sites add up before training.

        Returns:
            int64 [`SampleKind.num_counts`].
        """
        raise TypeError(f"{type(self).__name__} counts nothing in {len(indices)} samples")

    def class_counts(self, indices: Tensor) -> list[int]:
        """How many of the samples at some positions belong to each class of the data."""
        num_classes = int(self.labels.max()) + 1
        return torch.bincount(self.labels[indices], minlength=num_classes).tolist()

    def try_reading(self, index: int) -> Seen:
        """Reads one sample and returns its traits only; raises anything if that fails."""
        self.images(torch.tensor([index]))
        return {}

    def __len__(self) -> int:
        return len(self.labels)


class InMemoryPartitioner(Partitioner):
    """A data set in memory, as one tensor.

    A subclass defines `read`. Processes forked from the one that read it share the memory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._pixels, self.labels = _pair("read", "images [n, *shape]", self.read(data_dir))
        if len(self._pixels) != len(self.labels):
            raise ValueError(f"{len(self._pixels)} images but {len(self.labels)} labels")

    @abstractmethod
    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads all images, [n, *shape], uint8 or float32 in [−1, 1], and labels, int64 [n]."""

    def images(self, indices: Tensor) -> Tensor:
        chosen = self._pixels[indices]
        return pixels_to_float(chosen) if chosen.dtype == torch.uint8 else chosen

    @override
    def contents(self, indices: Tensor) -> list[bytes]:
        return _contents(self._pixels.index_select(0, indices))


class ImageFilesPartitioner(Partitioner):
    """A data set of picture files, each read when it is drawn; a subclass sets `shape`, has `find`.

    Pictures that cannot be read are left out.
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
    """The data of a worker that trains without samples."""

    labels = torch.empty(0, dtype=torch.int64)

    def images(self, indices: Tensor) -> Tensor:
        """Raises an error, since there are no samples."""
        raise IndexError(f"{len(indices)} samples of a worker that holds none")


def _contents(samples: Tensor) -> list[bytes]:
    """The content of each sample, from pixels, uint8, or from values in [−1, 1]."""
    if samples.dtype == torch.uint8:
        return [sample.tobytes() for sample in samples.numpy()]
    return kind_of(tuple(samples.shape[1:])).contents(samples)


def _pair(method: str, samples: str, result: object) -> tuple[Any, Tensor]:
    """Checks that a method returned samples and labels."""
    if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], Tensor):
        return result[0], result[1]
    parts = result if isinstance(result, tuple) else (result,)
    types = ", ".join(
        f"a tensor {list(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
        for part in parts
    )
    raise ValueError(
        f"{method} gives {types or 'nothing'}; it must return {samples} and labels, a tensor int64 "
        "[n] (zeros if there are no classes)"
    )
