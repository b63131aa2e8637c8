import pytest
import torch
from scipy import stats
from torch import Tensor

from mdgan.audit.separation import separate, separate_alike


def by_brute_force(members: Tensor, others: Tensor, weights: Tensor) -> float:
    """Mann and Whitney's statistic over all pairs."""
    won = (members[:, None] > others).double() + 0.5 * (members[:, None] == others).double()
    return float((won * weights).sum() / (len(members) * weights.sum()))


@pytest.mark.parametrize("seed", range(4))
def test_the_area_is_that_of_all_pairs_also_with_ties(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    members = torch.randint(0, 40, (130,), generator=random) / 4.0 + 3 * (seed % 2)
    others = torch.randint(0, 40, (210,), generator=random) / 4.0
    classes, their_classes = torch.arange(130) % 3, torch.arange(210) % 4
    share = torch.bincount(classes, minlength=4) / torch.bincount(their_classes)
    alike = separate_alike(members, classes, others, their_classes)
    for found, weights in (
        (separate(members, others), torch.ones(210)),
        (alike, share[their_classes]),
    ):
        assert found is not None
        assert found.auc == pytest.approx(by_brute_force(members, others, weights), abs=1e-6)
        assert (found.members, found.others) == (130, int((weights > 0).sum()))
        assert found.curve[0] == (0, 0)
        assert found.curve[-1] == pytest.approx((1, 1))


def test_large_scores_that_differ_little_are_told_apart() -> None:
    result = separate(torch.tensor([100.0, 101.0, 102.0]), torch.tensor([97.0, 98.0, 99.0]))
    assert result.auc == 1


def test_knowing_the_classes_of_a_shard_is_not_knowing_its_samples() -> None:
    random = torch.Generator().manual_seed(1)
    classes, other_classes = torch.arange(400) % 2, torch.arange(1000) % 10
    # A score that is high for the classes 0 and 1, and else chance.
    score = 9.0 * (other_classes < 2) + torch.randn(1000, generator=random)
    members = 9.0 + torch.randn(400, generator=random)
    assert separate(members, score).auc > 0.85
    result = separate_alike(members, classes, score, other_classes)
    assert result is not None
    assert result.auc == pytest.approx(0.5, abs=0.06)
    assert result.others == 200
    assert separate_alike(members, classes, score, other_classes + 2) is None
    assert result.chance == pytest.approx(0.5, abs=0.02)
    assert result.place is not None
    assert 0.01 < result.place < 0.99
    better = separate_alike(members + 0.5, classes, score, other_classes)
    assert better is not None
    assert better.place == pytest.approx(1 / 201)


def test_the_error_by_class_is_how_far_areas_of_attacks_that_know_nothing_scatter() -> None:
    random = torch.Generator().manual_seed(2)
    classes, other_classes = torch.arange(150) % 4, torch.arange(90) % 4
    results = []
    for _ in range(80):
        own, other = (
            5.0 * each + torch.randn(len(each), generator=random)
            for each in (classes, other_classes)
        )
        one = separate_alike(own, classes, other, other_classes)
        assert one is not None
        results.append(one)
    scatter = float(torch.tensor([one.auc for one in results]).std())
    assert results[0].error == pytest.approx(scatter, rel=0.25)
    places = torch.tensor([one.place for one in results])
    assert stats.kstest(places.numpy(), "uniform").pvalue > 1e-4


def test_false_alarms_are_as_rare_as_was_asked_and_too_few_others_say_nothing() -> None:
    random = torch.Generator().manual_seed(3)
    alarms, shares, members = [], [], torch.randn(400, generator=random) + 2
    for _ in range(20):
        (result,) = separate(members, torch.randn(400, generator=random)).found
        assert result.alarms == 0.01
        shares.append(result.share)
        low, high = result.interval
        assert low < result.share < high
        # By another way: the share is at an end of the interval with 2.5 %.
        count = round(400 * result.share)
        assert stats.binom.sf(count - 1, 400, low) == pytest.approx(0.025, abs=1e-6)
        assert stats.binom.cdf(count, 400, high) == pytest.approx(0.025, abs=1e-6)
        alarms.append(result.real_alarms[0] <= 0.01 <= result.real_alarms[1])
    assert sum(alarms) >= 18
    # Two of 200 others are above the threshold, or fewer: it lies at 2.3 and higher.
    assert 0.2 < sum(shares) / len(shares) < 0.5
    assert not separate(members, torch.randn(190, generator=random)).found
    both = separate(members, torch.randn(2100, generator=random)).found
    assert [each.alarms for each in both] == [0.01, 0.001]
