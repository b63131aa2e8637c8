"""CIFAR-10's shapes on noise, with its models without BatchNorm.

DDP cannot train BatchNorm on two batches before a step.
"""

from collections.abc import Callable

from torch import nn

from benchmarks.datasets.cifar10_noise import SHAPE, Z_DIM, Partitioner
from mdgan.data.dataset_file import load

__all__ = ["SHAPE", "Z_DIM", "Discriminator", "Generator", "Partitioner"]

_CIFAR10 = load("cifar10", None)


def _plain(make: Callable[[], nn.Module]) -> nn.Module:
    """The model with each BatchNorm replaced by the identity."""
    model = make()
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            model.set_submodule(name, nn.Identity())
    return model


def Generator() -> nn.Module:  # noqa: N802 # dataset files name it so
    """From noise [b, 100] to pictures [b, 3, 32, 32]."""
    return _plain(_CIFAR10.models.generator)


def Discriminator() -> nn.Module:  # noqa: N802 # dataset files name it so
    """From pictures [b, 3, 32, 32] to logits [b]."""
    return _plain(_CIFAR10.models.discriminator)
