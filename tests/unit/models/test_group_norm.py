"""GroupNorm instead of BatchNorm."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from mdgan.gan.build import build_model
from mdgan.models.blocks import num_groups, with_group_norm
from mdgan.models.check import compares_samples
from mdgan.models.registry import architecture


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (3, 1), (8, 2), (16, 4), (100, 25), (128, 32), (4096, 32)]
)
def test_groups_divide_the_channels(channels: int, groups: int) -> None:
    assert num_groups(channels) == groups


def test_scale_and_shift_stay_and_samples_are_judged_one_by_one() -> None:
    models = architecture("dcgan").make((1, 16, 16), 0, 8)
    alone = replace(models, discriminator=partial(with_group_norm, models.discriminator))
    assert compares_samples(models)
    assert not compares_samples(alone)
    before, after = build_model(models.discriminator, 0), build_model(alone.discriminator, 0)
    assert not [m for m in after.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [p.shape for p in after.parameters()] == [p.shape for p in before.parameters()]
    for own, theirs in zip(after.parameters(), before.parameters(), strict=True):
        assert torch.equal(own, theirs)


def test_a_model_that_is_a_norm_and_one_of_vectors() -> None:
    assert isinstance(with_group_norm(lambda: nn.BatchNorm1d(8)), nn.GroupNorm)
    model = with_group_norm(lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)))
    assert model(torch.ones(1, 4)).shape == (1, 8)
