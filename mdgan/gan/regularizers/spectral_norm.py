"""Spectral norm of D's layers (Miyato et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdgan.gan.regularizers.contract import Regularizer
from mdgan.settings.declare import Settings, setting, switch
from mdgan.spelling import flag

if TYPE_CHECKING:
    from torch import nn

_LEAST_DIMENSIONS = 2  # of a weight that is a matrix; BatchNorm's and others are vectors


class SpectralNormSettings(Settings, group="models"):
    """Whether D's layers have it."""

    spectral_norm: bool | None = setting(
        None,
        "Divide the weights of each of the discriminator's layers by their spectral norm.",
        switch(),
    )


class SpectralNorm(Regularizer):
    """On all layers of a discriminator that have a matrix of weights."""

    name = "spectral_norm"
    asked = flag("spectral_norm")

    @classmethod
    def of(cls, settings: SpectralNormSettings) -> SpectralNorm | None:
        return cls() if settings.spectral_norm else None

    def change_model(self, model: nn.Module) -> None:
        add_spectral_norm(model)


def add_spectral_norm(model: nn.Module) -> None:
    """Makes a model's layers divide their weights by their largest singular value.

    As Miyato et al. 2018 (Algorithm 1): one step of power iteration whenever the model computes in
    training. The vectors of the iteration are buffers, which move in swaps and are saved.
    """
    from torch.nn.utils.parametrizations import spectral_norm
    from torch.nn.utils.parametrize import is_parametrized

    weights = {layer: layer._parameters.get("weight") for layer in model.modules()}
    layers = [
        layer
        for layer, weight in weights.items()
        if weight is not None and weight.dim() >= _LEAST_DIMENSIONS and not is_parametrized(layer)
    ]
    if not layers:
        raise ValueError(
            "its layers are normalised already; leave it out"
            if any(map(is_parametrized, weights))
            else "none of its layers has a matrix of weights"
        )
    for layer in layers:
        spectral_norm(layer)
