"""What clients send where updates are added up: cut to a norm, without buffers."""

from fractions import Fraction
from math import inf, isqrt, nan, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.updates import cut, differences, models, sent_by, update
from tests.unit.families.federated.rounds import make_models

VECTOR = make_models().vector
LOSSES = torch.tensor([0.5, 0.25])
ROWS, COLUMNS = 3, 8

values = st.lists(
    st.floats(-1e6, 1e6, width=32), min_size=ROWS * COLUMNS, max_size=ROWS * COLUMNS
).map(lambda found: torch.tensor(found).view(ROWS, COLUMNS))
bounds = st.floats(1e-3, 1e3)


def exact_square(vector: Tensor) -> Fraction:
    """‖x‖², as a fraction."""
    return sum((Fraction(x) ** 2 for x in vector.flatten().tolist()), Fraction(0))


@given(values, bounds)
def test_no_update_is_longer_than_the_bound(changed: Tensor, clip: float) -> None:
    found, bound = cut(changed, clip), Fraction(clip) ** 2
    assert exact_square(found) <= bound
    if exact_square(changed) <= bound * (1 - Fraction(1, 2**40)):
        assert torch.equal(found, changed), "a short one stays as it is"


@given(values, bounds)
def test_it_keeps_its_direction_and_is_no_shorter_than_it_must_be(
    changed: Tensor, clip: float
) -> None:
    square = exact_square(changed)
    norm = isqrt(int(square * 4**60)) / 2**60
    if norm <= clip:
        return
    expected = changed.double() * (clip / norm)
    assert torch.allclose(cut(changed, clip).double(), expected, rtol=2e-6, atol=1e-37)


def test_many_threads_cut_as_one_does() -> None:
    changed = torch.randn(999, 1024, generator=torch.Generator().manual_seed(0))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(cut(changed, 1.0))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert float(found[0].double().norm()) == pytest.approx(1.0, rel=2e-6)


@pytest.mark.parametrize("broken", [nan, inf, -inf])
def test_what_is_broken_counts_as_none(broken: float) -> None:
    changed = torch.zeros(2, 4)
    changed[1, 2] = broken
    for clip in (1.0, inf):
        assert not cut(changed, clip).any()


def test_an_update_has_no_buffers() -> None:
    begun, found = VECTOR.read(), make_models(1).vector.read() + 1.0
    blocks = VECTOR.num_weight_blocks
    assert blocks < len(begun), "these models have buffers"
    sent, losses = update(begun, (found, LOSSES), num_weight_blocks=blocks)
    assert torch.equal(sent[:blocks], found[:blocks] - begun[:blocks])
    assert not sent[blocks:].any()
    assert torch.equal(losses, LOSSES)


def read(**given: object) -> FederatedSettings:
    return FederatedSettings.read(given, FederatedSettings.defaults_beside(given))


PRIVATE = {"dp_unit": "client", "dp_noise": 1.0, "dp_delta": 0.1, "dp_clip": 0.25}


def test_what_is_sent_follows_from_the_settings() -> None:
    begun, found = VECTOR.read(), (make_models(1).vector.read(), LOSSES)
    bare = update(begun, found, num_weight_blocks=VECTOR.num_weight_blocks)[0]
    for settings, vector, losses in (
        (read(), *models(begun, found)),
        (read(wire="models=int8"), *differences(begun, found)),
        (read(sampling="poisson"), bare, LOSSES),
        (read(**PRIVATE), cut(bare, 0.25), torch.zeros(2)),
        (read(**PRIVATE, dp_disclose="losses"), cut(bare, 0.25), LOSSES),
    ):
        sent = sent_by(settings, VECTOR)(begun, found)
        assert torch.equal(sent[0], vector)
        assert torch.equal(sent[1], losses)
    assert sqrt(exact_square(cut(bare, 0.25))) == pytest.approx(0.25, rel=2e-6)
