import pytest
import torch
from torch import Tensor

from mdgan.audit.distances import Space, copying, most_suspicious


@pytest.fixture
def points() -> Tensor:
    return torch.randn(900, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_generator_that_copies_is_found(points: Tensor) -> None:
    copied = points[:200].repeat(3, 1) + 1e-3 * points[:600]
    found = copying(Space("pixels", copied, points[:200], points[600:]), seed=0)
    assert found.membership.auc > 0.999
    assert found.membership.tpr > 0.99
    assert found.ratio < 0.01
    assert found.nearer == 1


def test_one_that_makes_new_samples_is_not_accused_though_more_are_trained_on(
    points: Tensor,
) -> None:
    found = copying(Space("pixels", points[:300], points[300:800], points[800:]), seed=0)
    assert found.membership.auc == pytest.approx(0.5, abs=0.1)
    assert found.ratio == pytest.approx(1, abs=0.12)
    assert found.nearer == pytest.approx(0.5, abs=0.1)


def test_the_only_copy_is_shown_first_beside_what_it_copies(points: Tensor) -> None:
    generated = points[:300].clone()
    generated[123] = points[400] + 1e-9
    places, trained, held_out = most_suspicious(
        Space("features", generated, points[300:700], points[700:]), 5
    )
    assert [int(places[0]), int(trained[0])] == [123, 100]
    assert len(held_out) == 5
