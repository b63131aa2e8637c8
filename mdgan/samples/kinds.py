"""Which kind of sample a shape speaks of where a data set does not say."""

from mdgan.samples.contract import SampleKind, Shape
from mdgan.samples.pictures.kind import PICTURES
from mdgan.samples.tensors.kind import TENSORS

_PICTURE_SIZES = 3


def kind_of(shape: Shape) -> SampleKind:
    """Pictures where there are three sizes, (C, H, W); else tensors."""
    return PICTURES if len(shape) == _PICTURE_SIZES else TENSORS
