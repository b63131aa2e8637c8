import math

import pytest
import torch
from torch import Tensor

from mdgan.audit.separation import separate, separate_alike


def by_brute_force(members: Tensor, others: Tensor, weights: Tensor) -> tuple[float, float]:
    """Mann and Whitney's statistic over all pairs, and the best share found at 1 % false alarms."""
    won = (members[:, None] > others).double() + 0.5 * (members[:, None] == others).double()
    area = float((won * weights).sum() / (len(members) * weights.sum()))
    found = 0.0
    for threshold in [*torch.cat([members, others]).tolist(), math.inf]:
        alarms = float(weights[others >= threshold].sum() / weights.sum())
        if alarms <= 0.01:
            found = max(found, float((members >= threshold).double().mean()))
    return area, found


@pytest.mark.parametrize("seed", range(4))
def test_area_and_share_found_are_those_of_all_pairs_also_with_ties(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    members = torch.randint(0, 40, (130,), generator=random) / 4.0 + 3 * (seed % 2)
    others = torch.randint(0, 40, (210,), generator=random) / 4.0
    weights = torch.rand(210, generator=random, dtype=torch.float64)
    for given in (None, weights):
        found = separate(members, others, given)
        own = torch.ones(210, dtype=torch.float64) if given is None else given
        area, share = by_brute_force(members, others, own)
        assert found.auc == pytest.approx(area, abs=1e-9)
        assert found.tpr == pytest.approx(share, abs=1e-9)
        assert (found.members, found.others) == (130, 210)
        assert found.curve[0] == (0, 0)
        assert found.curve[-1] == pytest.approx((1, 1))


def test_the_standard_error_is_how_far_areas_scatter() -> None:
    random = torch.Generator().manual_seed(0)
    found = [
        separate(torch.randn(60, generator=random) + 0.7, torch.randn(90, generator=random))
        for _ in range(150)
    ]
    scatter = float(torch.tensor([one.auc for one in found]).std())
    assert found[0].error == pytest.approx(scatter, rel=0.35)


def test_large_scores_that_differ_little_are_told_apart() -> None:
    found = separate(torch.tensor([100.0, 101.0, 102.0]), torch.tensor([97.0, 98.0, 99.0]))
    assert (found.auc, found.tpr) == (1, 1)


def test_knowing_the_classes_of_a_shard_is_not_knowing_its_samples() -> None:
    random = torch.Generator().manual_seed(1)
    classes, other_classes = torch.arange(400) % 2, torch.arange(1000) % 10
    # A score that is high for the classes 0 and 1, and else chance.
    score = 9.0 * (other_classes < 2) + torch.randn(1000, generator=random)
    members = 9.0 + torch.randn(400, generator=random)
    assert separate(members, score).auc > 0.85
    found = separate_alike(members, classes, score, other_classes)
    assert found is not None
    assert found.auc == pytest.approx(0.5, abs=0.06)
    assert found.others == 200
    assert separate_alike(members, classes, score, other_classes + 2) is None
