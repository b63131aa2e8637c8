"""Pictures as a kind of sample."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from mdgan.samples.contract import SampleKind, Shape, Writer
from mdgan.samples.npz import npz_of
from mdgan.samples.pictures.grid import class_grid_png, grid_png
from mdgan.samples.pictures.reading import float_to_pixels


class Pictures(SampleKind):
    """Pictures [C, H, W], of which two are the same if their pixels in 8 bits are."""

    name: ClassVar[str] = "pictures"
    is_seen: ClassVar[bool] = True

    def why_not(self, shape: Shape) -> str:
        """They have channels, height and width."""
        return "" if len(shape) == 3 else "pictures have three sizes, (channels, height, width)"

    def contents(self, samples: Tensor) -> list[bytes]:
        """The pixels of each, uint8."""
        return [picture.tobytes() for picture in float_to_pixels(samples).numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """A grid, with a row for each class; or arrays."""
        return {".png": self._written_png, ".npz": npz_of}

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """A grid; see `grid_png`."""
        return grid_png(samples, columns)

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """A grid with a row for each class."""
        return class_grid_png(samples, labels)

    def _written_png(self, samples: Tensor, labels: Tensor | None) -> bytes:
        if labels is None or bool((labels == labels[0]).all()):
            return self.png(samples)
        return self.class_png(samples, labels)


PICTURES = Pictures()
