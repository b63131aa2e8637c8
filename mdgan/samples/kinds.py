"""Kinds of samples by name, and which one a shape speaks of where a data set does not say."""

from mdgan.errors import BadInput
from mdgan.samples.contract import SampleKind, Shape
from mdgan.samples.pictures.kind import PICTURES
from mdgan.samples.tensors.kind import SERIES, TENSORS, VOLUMES
from mdgan.settings.declare import suggest
from mdgan.settings.plugins import SAMPLES, installed, load

_KINDS: dict[int, SampleKind] = {2: SERIES, 3: PICTURES, 4: VOLUMES}


def kind_of(shape: Shape) -> SampleKind:
    """By the number of sizes: series (C, T), pictures (C, H, W), volumes (C, D, H, W); tensors."""
    return _KINDS.get(len(shape), TENSORS)


def kind_named(name: str) -> SampleKind:
    """A kind of mdgan's own, or one of an installed package; `BadInput` if there is none."""
    own = {kind.name: kind for kind in (*_KINDS.values(), TENSORS)}
    if name in own:
        return own[name]
    if name not in installed(SAMPLES):
        known = (*own, *installed(SAMPLES))
        raise BadInput(f"{name}: must be one of {', '.join(known)}{suggest(name, known)}")
    return load(SAMPLES, name, SampleKind)  # type: ignore[type-abstract] # an object of a subclass
