"""Base classes of a dataset file's `Partitioner`: labels at once, images on demand."""

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor

from mdgan.data.images import Shape, pixels_to_float, read_image


class Partitioner(ABC):
    """A data set on this machine's disk, ready to be divided and sampled.

    Attributes:
        labels: int64 [n], the class of each sample, in [0, number of classes).
        class_names: one name a class; empty if the classes have only numbers.
    """

    labels: Tensor
    class_names: tuple[str, ...] = ()

    @abstractmethod
    def images(self, indices: Tensor) -> Tensor:
        """The samples at some positions.

        Args:
            indices: int64 [k] in [0, n).

        Returns:
            float32 [k, C, H, W] in [−1, 1].
        """

    def __len__(self) -> int:
        return len(self.labels)


class InMemoryPartitioner(Partitioner):
    """A data set small enough to be held in memory as one tensor.

    A subclass defines `read`. Processes forked from the one that read it share the memory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._pixels, self.labels = self.read(data_dir)
        if len(self._pixels) != len(self.labels):
            raise ValueError(f"{len(self._pixels)} images but {len(self.labels)} labels")

    @abstractmethod
    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        """Reads the whole data set.

        Args:
            data_dir: the folder given as `--data-dir`.

        Returns:
            Images [n, C, H, W], uint8 in [0, 255] or float32 in [−1, 1]; labels, int64 [n].
        """

    def images(self, indices: Tensor) -> Tensor:
        """The samples at some positions, float32 [k, C, H, W] in [−1, 1]."""
        chosen = self._pixels[indices]
        return pixels_to_float(chosen) if chosen.dtype == torch.uint8 else chosen


class ImageFilesPartitioner(Partitioner):
    """A data set of picture files, each read when it is drawn.

    A subclass defines `find` and sets `shape`.
    """

    shape: Shape

    def __init__(self, data_dir: Path) -> None:
        self._paths, self.labels = self.find(data_dir)

    @abstractmethod
    def find(self, data_dir: Path) -> tuple[list[Path], Tensor]:
        """Lists the files in a fixed order.

        Args:
            data_dir: the folder given as `--data-dir`.

        Returns:
            The n paths, and labels, int64 [n].
        """

    def images(self, indices: Tensor) -> Tensor:
        """The samples at some positions, float32 [k, C, H, W] in [−1, 1]."""
        return torch.stack([read_image(self._paths[i], self.shape) for i in indices.tolist()])
