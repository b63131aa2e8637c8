"""Tensors of any shape as a kind of sample."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from mdgan.samples.contract import SampleKind, Shape, Writer
from mdgan.samples.npz import npz_of
from mdgan.samples.pictures.kind import class_grid_png, grid_png


class Tensors(SampleKind):
    """Samples of any shape, which are written as arrays and not shown."""

    name: ClassVar[str] = "tensors"

    def why_not(self, shape: Shape) -> str:
        """Any shape will do."""
        del shape
        return ""

    def contents(self, samples: Tensor) -> list[bytes]:
        """The values of each, float32."""
        return [sample.tobytes() for sample in samples.contiguous().numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """Arrays."""
        return {".npz": npz_of}


class SeenTensors(Tensors):
    """Tensors of which pictures are made, to be seen."""

    is_seen: ClassVar[bool] = True

    @abstractmethod
    def pictures(self, samples: Tensor) -> Tensor:
        """A picture of each, float [n, 1 or 3, H, W] in [−1, 1]."""

    def writers(self) -> Mapping[str, Writer]:
        """Arrays, or a grid of pictures."""
        return {**super().writers(), ".png": lambda samples, _: self.png(samples)}

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """A grid of pictures."""
        return grid_png(self.pictures(samples), columns)

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """A grid with a row for each class."""
        return class_grid_png(self.pictures(samples), labels)


TENSORS = Tensors()
