"""Penalties on the gradient of D with respect to its input, and spectral norm of D's layers.

Shapes are written [b, C, H, W]; [R, b, C, H, W] for R discriminators at once works as well, and
gives [R] instead of a scalar.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

_IMAGE = (-3, -2, -1)
_LEAST_DIMENSIONS = 2
"""Of a weight that is a matrix; BatchNorm's and others are vectors."""


def r1_penalty(logits: Tensor, real: Tensor, gamma: float) -> Tensor:
    """R1 = γ/2 · E‖∇D(x)‖² on real samples; Mescheder et al. 2018, equation 9.

    Args:
        logits: D(x), any shape.
        real: x, [b, C, H, W], which the logits were computed from; wants a gradient.
        gamma: γ.

    Returns:
        A scalar with its graph.
    """
    return 0.5 * gamma * _gradient(logits, real).square().sum(_IMAGE).mean(-1)


def gradient_penalty(logits: Tensor, mixed: Tensor, weight: float) -> Tensor:
    """λ · E(‖∇D(x̂)‖ − 1)² between real and generated samples; Gulrajani et al. 2017, equation 3.

    Args:
        logits: D(x̂), any shape.
        mixed: x̂ from `mix`, [b, C, H, W], which the logits were computed from; wants a gradient.
        weight: λ.

    Returns:
        A scalar with its graph.
    """
    norms: Tensor = torch.linalg.vector_norm(_gradient(logits, mixed), dim=_IMAGE)
    return weight * (norms - 1).square().mean(-1)


def mix(real: Tensor, fake: Tensor) -> Tensor:
    """x̂ = εx + (1 − ε)x̃ with ε ~ U[0, 1] for each sample, from torch's default random numbers.

    Args:
        real: x, [b, C, H, W].
        fake: x̃, of the same shape.
    """
    share = torch.rand(len(real), 1, 1, 1, device=real.device)
    return share * real + (1 - share) * fake


def _gradient(logits: Tensor, samples: Tensor) -> Tensor:
    """∂D(x)/∂x of each sample, with its graph; a sample's logit depends on that sample alone."""
    (gradient,) = torch.autograd.grad(logits.sum(), samples, create_graph=True)
    return gradient


def with_spectral_norm(build: Callable[[], nn.Module]) -> nn.Module:
    """Builds a model with spectral norm; see `add_spectral_norm`.

    Args:
        build: makes the model; the vectors of the iteration are drawn after its weights.

    Raises:
        ValueError: it has no layer with a matrix of weights, or has spectral norm of its own.
    """
    model = build()
    add_spectral_norm(model)
    return model


def add_spectral_norm(model: nn.Module) -> None:
    """Makes a model's layers divide their weights by their largest singular value.

    As Miyato et al. 2018 (Algorithm 1): one step of power iteration whenever the model computes in
    training. The vectors of the iteration are buffers, which move in swaps and are saved.

    Args:
        model: any; layers that are parametrized already stay as they are.

    Raises:
        ValueError: there is no layer to put it on.
    """
    layers = [layer for layer in model.modules() if _has_matrix(layer)]
    if not layers:
        own = any(parametrize.is_parametrized(layer) for layer in model.modules())
        raise ValueError(
            "its layers are normalised already; leave it out"
            if own
            else "none of its layers has a matrix of weights"
        )
    for layer in layers:
        spectral_norm(layer)


def _has_matrix(layer: nn.Module) -> bool:
    if parametrize.is_parametrized(layer):
        return False  # by its own code
    weight = layer._parameters.get("weight")
    return weight is not None and weight.dim() >= _LEAST_DIMENSIONS
