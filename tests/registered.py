"""Removes what a test has registered, so that other tests do not see it."""

from collections.abc import Iterator

import pytest

from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.interface import register
from mdgan.models import registry


@pytest.fixture(autouse=True)
def forget_registered() -> Iterator[None]:
    """Afterwards there are mdgan's own losses, optimizers and architectures again."""
    yield
    for names in register.NAMES_BY_SETTING.values():
        for name in names.registered:
            for kind in (GENERATOR_LOSSES, DISCRIMINATOR_LOSSES, registry._ARCHITECTURES):
                kind.pop(name, None)
        names.registered.clear()
