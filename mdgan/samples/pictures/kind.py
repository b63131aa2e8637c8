"""Pictures as a kind of sample."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from mdgan.samples.contract import Writer, npz_of
from mdgan.samples.pictures.reading import float_to_pixels
from mdgan.samples.tensors.kind import SeenTensors


class Pictures(SeenTensors):
    """Pictures [C, H, W], of which two are the same if their pixels in 8 bits are."""

    name: ClassVar[str] = "pictures"
    sizes: ClassVar[tuple[str, ...]] = ("channels", "height", "width")

    def pictures(self, samples: Tensor) -> Tensor:
        """They are."""
        return samples

    def contents(self, samples: Tensor) -> list[bytes]:
        """The pixels of each, uint8."""
        return [picture.tobytes() for picture in float_to_pixels(samples).numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """A grid, with a row for each class; or arrays."""
        return {".png": self._written_png, ".npz": npz_of}

    def _written_png(self, samples: Tensor, labels: Tensor | None) -> bytes:
        if labels is None or bool((labels == labels[0]).all()):
            return self.png(samples)
        return self.class_png(samples, labels)


PICTURES = Pictures()
