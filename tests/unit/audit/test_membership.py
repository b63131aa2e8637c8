import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mdgan.audit.membership import Visits, judge, logits, visits
from mdgan.gan.labels import Samples
from mdgan.records.rows import Swap


def some(number: int, seed: int) -> Samples:
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (number,), generator=random)
    return Samples(torch.rand(number, 1, 6, 6, generator=random) * 2 - 1, labels)


@pytest.fixture
def trained() -> nn.Module:
    """A discriminator that has learnt the samples of seed 1 by heart."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 1))
    adam, fake = torch.optim.Adam(model.parameters(), 1e-2), some(200, 9).images
    for _ in range(150):
        adam.zero_grad()
        loss = F.softplus(-model(some(40, 1).images)).mean() + F.softplus(model(fake)).mean()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        adam.step()
    return model


def test_a_shard_that_was_learnt_by_heart_is_found_and_another_one_is_not(
    trained: nn.Module,
) -> None:
    visited = Visits(1, {1: 150, 2: 1})
    verdict = judge(trained, {1: some(40, 1), 2: some(200, 2)}, some(1000, 3), visited, 4)
    assert not isinstance(verdict, str)
    assert (verdict.worker, verdict.last) == (4, 1)
    assert verdict.of_last.auc > 0.97
    assert verdict.of_last.found[0].share > 0.4
    assert 0.5 < verdict.of_all.auc < 0.75
    stranger = judge(trained, {2: some(200, 2)}, some(300, 3), Visits(2, {2: 1}), 4)
    assert not isinstance(stranger, str)
    assert stranger.of_last.auc == pytest.approx(0.5, abs=0.08)


def test_discriminators_that_say_nothing_are_left_out_with_the_reason(trained: nn.Module) -> None:
    held_out = some(50, 3)
    other = Samples(held_out.images, held_out.labels + 5 if held_out.labels is not None else None)
    why = judge(trained, {1: some(40, 1)}, other, Visits(1, {1: 9}), 1)
    assert why == "no held-out sample is of the classes that it was trained on"
    with torch.no_grad():
        next(trained.parameters()).fill_(torch.nan)
    assert judge(trained, {1: some(40, 1)}, held_out, Visits(1), 1) == "its logits are not finite"


def test_logits_are_those_of_evaluation_in_the_order_of_the_samples() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 1))
    samples = some(300, 4)
    model.eval()
    with torch.no_grad():
        expected = model(samples.images).flatten()
    model.train()
    torch.testing.assert_close(logits(model, samples), expected)


def swap(iteration: int, moves: dict[int, int], *lost: int, means: bool = False) -> Swap:
    taken_digests = {taker: "d" for taker in moves.values() if taker not in lost}
    return Swap(iteration=iteration, pairs=tuple(moves.items()), taken=taken_digests, means=means)


def test_a_discriminator_takes_along_with_whom_it_was() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(30, {1: 3, 3: 1})]
    visits_found = visits(swaps, [1, 2, 3], 45)
    assert visits_found[3].iterations == {2: 10, 1: 20, 3: 15}
    assert visits_found[1].iterations == {3: 30, 1: 15}
    assert visits_found[2].iterations == {1: 10, 2: 35}
    assert [visits_found[n].last for n in (1, 2, 3)] == [1, 2, 3]


def test_a_mean_of_two_was_with_whom_both_were() -> None:
    swaps = [swap(10, {1: 2, 2: 1}, means=True), swap(30, {1: 3}, means=True)]
    visits_found = visits(swaps, [1, 2, 3], 45)
    assert visits_found[1].iterations == {1: 45, 2: 10}
    assert visits_found[2].iterations == {1: 10, 2: 45}
    assert visits_found[3].iterations == {1: 30, 2: 10, 3: 15}, (
        "a worker that gives nothing has no mean"
    )


def test_one_that_has_just_arrived_was_trained_by_its_giver() -> None:
    visits_found = visits([swap(10, {1: 2, 2: 1})], [1, 2], 10)
    assert (visits_found[1].last, visits_found[2].last) == (2, 1)
    assert visits_found[1].iterations == {2: 10}


def test_one_that_did_not_arrive_leaves_the_other_in_place_and_later_swaps_do_not_count() -> None:
    visits_found = visits([swap(10, {1: 2, 2: 1}, 1), swap(99, {1: 2, 2: 1})], [1, 2], 20)
    assert visits_found[1].iterations == {1: 20}
    assert visits_found[2].iterations == {1: 10, 2: 10}
