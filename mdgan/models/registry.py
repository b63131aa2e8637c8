"""All architectures. A new one is a file beside this one and an entry here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mdgan.errors import BadInput
from mdgan.gan.build import Models
from mdgan.models import dcgan
from mdgan.models.settings import FILE
from mdgan.settings.declare import suggest

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Architecture:
    """Models for samples of many shapes.

    Attributes:
        name: what `--architecture` says.
        make: makes the models for a shape (C, H, W), a number of classes (0 if the data set names
            none) and a width; raises ValueError with the reason where it cannot.
        width: without `--width`.
        source: the paper.
        defaults: the paper's settings of training, by name.
        conditional: whether the models are given the class of each sample.
    """

    name: str
    make: Callable[[Shape, int, int], Models]
    width: int
    source: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    conditional: bool = False


_ARCHITECTURES: dict[str, Architecture] = {}


def register(entry: Architecture) -> None:
    """Adds an architecture.

    Raises:
        ValueError: another one has that name.
    """
    if entry.name == FILE or entry.name in _ARCHITECTURES:
        raise ValueError(f"there is an architecture {entry.name} already")
    _ARCHITECTURES[entry.name] = entry


def architectures() -> tuple[Architecture, ...]:
    """All of them."""
    return tuple(_ARCHITECTURES.values())


def architecture(name: object) -> Architecture:
    """One architecture by its name.

    Raises:
        BadInput: there is none of that name.
    """
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        known = (FILE, *_ARCHITECTURES)
        raise BadInput(
            f"--architecture {name}: must be one of {', '.join(known)}{suggest(str(name), known)}"
        )
    return _ARCHITECTURES[name]


register(
    Architecture(
        "dcgan",
        dcgan.make,
        width=128,
        source="Radford et al. 2016",
        defaults={
            "generator_loss": "non-saturating",
            "discriminator_loss": "bce",
            "generator_lr": 2e-4,
            "discriminator_lr": 2e-4,
            "beta1": 0.5,
            "beta2": 0.999,
            "local_steps": 1,
        },
    )
)
