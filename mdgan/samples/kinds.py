"""Which kind of sample a shape speaks of where a data set does not say."""

from mdgan.samples.contract import SampleKind, Shape
from mdgan.samples.pictures.kind import PICTURES
from mdgan.samples.tensors.kind import TENSORS
from mdgan.samples.tensors.series import SERIES
from mdgan.samples.tensors.volumes import VOLUMES

_KINDS: dict[int, SampleKind] = {2: SERIES, 3: PICTURES, 4: VOLUMES}


def kind_of(shape: Shape) -> SampleKind:
    """By the number of sizes: series (C, T), pictures (C, H, W), volumes (C, D, H, W); tensors."""
    return _KINDS.get(len(shape), TENSORS)
