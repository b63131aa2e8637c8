"""Tensors of any shape as a kind of sample."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from mdgan.samples.contract import SampleKind, Shape, Writer
from mdgan.samples.npz import npz_of


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


TENSORS = Tensors()
