"""All architectures: one entry here for each file beside this one, and those of packages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mdgan.errors import BadInput
from mdgan.gan.build import Models, Parts
from mdgan.models import acgan, biggan, dcgan, lsgan, md_gan, sngan, table
from mdgan.models.settings import FILE
from mdgan.samples.contract import SampleKind, Shape
from mdgan.samples.kinds import kind_of
from mdgan.settings.declare import suggest
from mdgan.settings.plugins import ARCHITECTURES, installed, load
from mdgan.spelling import flag

_PICTURE_SIZES = 3


@dataclass(frozen=True)
class Architecture:
    """A pair of models that can be made for samples of many shapes."""

    name: str
    parts: Callable[[Any, int, int], Parts]
    """From a shape, a number of classes K (0 if the models are not conditional) and a width, gives
    the functions that make G and D, and the length of z. Raises ValueError with the reason if the
    architecture does not fit. The shape is (C, H, W), unless `fits` says otherwise."""
    width: int  # without `--width`
    defaults: Mapping[str, Any] = field(default_factory=dict)
    conditional: bool = False  # whether the models need classes
    fits: Literal["pictures", "shapes", "kinds"] = "pictures"
    """What `parts` takes first: the shape of pictures, any shape, or a kind of sample, which says
    more than a shape. Models for kinds are conditional if there are classes."""

    def make(
        self, shape: Shape, num_classes: int, width: int, kind: SampleKind | None = None
    ) -> Models:
        """Makes the models for samples of a shape and a kind, by default the shape's."""
        kind = kind or kind_of(shape)
        if self.fits == "pictures" and len(shape) != _PICTURE_SIZES:
            raise ValueError(f"makes pictures, not {kind.name} of the shape {shape}")
        of = kind if self.fits == "kinds" else shape
        generator, discriminator, z_dim = self.parts(of, num_classes, width)
        source, weights = flag("architecture", self.name), kind.value_weights
        return Models(source, shape, z_dim, generator, discriminator, weights)


def _adam(
    loss: tuple[str, str], rates: tuple[float, float], betas: tuple[float, float], local_steps: int
) -> dict[str, Any]:
    generator, discriminator = (f"lr={rate},beta1={betas[0]},beta2={betas[1]}" for rate in rates)
    return {
        "generator_loss": loss[0],
        "discriminator_loss": loss[1],
        "generator_optimizer": generator,
        "discriminator_optimizer": discriminator,
        "local_steps": local_steps,
    }


_HINGE = ("hinge", "hinge")
_DCGAN = _adam(("non-saturating", "bce"), (2e-4, 2e-4), (0.5, 0.999), local_steps=1)
_LSGAN = _adam(("least-squares", "least-squares"), (2e-4, 2e-4), (0.5, 0.999), local_steps=1)
_SNGAN = _adam(_HINGE, (2e-4, 2e-4), (0.0, 0.9), local_steps=5)
_BIGGAN = _adam(_HINGE, (5e-5, 2e-4), (0.0, 0.999), local_steps=2)
_TABLE = {
    **_adam(("non-saturating", "bce"), (1e-3, 1e-3), (0.0, 0.99), local_steps=1),
    **{"label_prior": "data", "r1": 1.0, "batch_size": 128, "ema": 500.0, "iterations": 3000},
}

_ARCHITECTURES = {
    entry.name: entry
    for entry in (
        Architecture("dcgan", dcgan.make, 128, defaults=_DCGAN),  # Radford et al. 2016
        Architecture("lsgan", lsgan.make, 16, defaults=_LSGAN),  # Guerraoui et al. 2020
        Architecture("sngan", sngan.make, 64, defaults=_SNGAN),  # Miyato et al. 2018
        Architecture("biggan", biggan.make, 96, _BIGGAN, True),  # Brock et al. 2019
        Architecture("acgan", acgan.make, 16, _DCGAN, True),  # Odena et al. 2017
        Architecture(
            "md-gan-mlp", md_gan.make_mlp, 512, defaults=_DCGAN, conditional=True, fits="shapes"
        ),  # Hardy et al. 2019
        Architecture("md-gan-cnn", md_gan.make_cnn, 16, _DCGAN, True),  # Hardy et al. 2019
        Architecture("dcgan3d", dcgan.make_volumes, 32, _DCGAN, fits="shapes"),  # Wu et al. 2016
        Architecture("table", table.make, 192, defaults=_TABLE, fits="kinds"),
    )
}


def register(entry: Architecture) -> None:
    """Adds an architecture of the user, or replaces an earlier one of the same name.

    `settings.names` refuses the names of mdgan's own architectures.
    """
    _ARCHITECTURES[entry.name] = entry


def architectures() -> tuple[Architecture, ...]:
    """All architectures that have an entry here, or were registered."""
    return tuple(_ARCHITECTURES.values())


def architecture(name: object) -> Architecture:
    """Finds an architecture by its name, also in installed packages."""
    asked = flag("architecture", str(name))
    if isinstance(name, str) and name in installed(ARCHITECTURES).keys() - _ARCHITECTURES.keys():
        try:
            register(load(ARCHITECTURES, name, Architecture))
        except BadInput as error:
            raise BadInput(asked, error.why, error.way_out) from error
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        names = dict.fromkeys((FILE, *_ARCHITECTURES, *installed(ARCHITECTURES)))
        raise BadInput(asked, f"must be one of {', '.join(names)}{suggest(str(name), names)}")
    return _ARCHITECTURES[name]
