"""The models of volumes."""

import pytest
import torch

from mdgan.gan.build import build_model
from mdgan.models.registry import architecture


@pytest.mark.parametrize("shape", [(1, 8, 8, 8), (2, 32, 32, 32)])
def test_volumes_and_logits(shape: tuple[int, ...]) -> None:
    models = architecture("dcgan3d").make(shape, 0, 4)
    generator, discriminator = (
        build_model(make, 0) for make in (models.generator, models.discriminator)
    )
    z = torch.randn(3, models.z_dim, generator=torch.Generator().manual_seed(0))
    volumes = generator(z)
    assert volumes.shape == (3, *shape)
    assert volumes.abs().max() <= 1
    logits = discriminator(volumes)
    assert logits.shape == (3, 1)
    assert torch.allclose(discriminator(volumes[:1]), logits[:1], atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 8, 8, 16), (1, 12, 12, 12), (1, 4, 4, 4), (3, 9)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="makes volumes"):
        architecture("dcgan3d").make(shape, 0, 4)
