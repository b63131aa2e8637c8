"""Feedback becomes a gradient: which form a rule takes, and what it gives."""

from collections.abc import Mapping
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation import (
    Aggregation,
    aggregate,
    combine_samples,
    gradient_of_each,
)
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign
from mdgan.families.mdgan.settings import AggregationRule, parse_aggregation
from tests.unit.gan.small import (
    BATCH_SIZE,
    SHAPE,
    equal_bits,
    images,
    make_learner,
    same_bits,
)

ROBUST = ["median", "trimmed-mean:1", "trimmed-mean:3", "krum:1", "krum:3", "clip:1", "clip:2.5"]


def rule_of(text: str) -> AggregationRule:
    return parse_aggregation(text)


def feedbacks_of(workers: list[int], seed: int = 0) -> dict[int, Tensor]:
    return {n: images(100 * seed + n) for n in workers}


def gradient_of(
    rule: AggregationRule,
    feedbacks: Mapping[int, Tensor],
    assignment: Mapping[int, Assignment],
    kappa: int,
) -> tuple[list[Tensor], int]:
    """What an aggregation leaves in place, and the number of backward passes it took."""
    learner, passes = make_learner(), 0

    def count(_gradient: Tensor) -> None:
        nonlocal passes
        passes += 1

    learner.model.register_forward_hook(lambda _model, _given, x: x.register_hook(count) and x)
    learner.generate(kappa)
    Aggregation(rule).update_gradient(learner, feedbacks, assignment, kappa)
    gradients = [p.grad.clone() for p in learner.model.parameters() if p.grad is not None]
    assert len(gradients) == len(list(learner.model.parameters()))
    learner.step()
    return gradients, passes


def gradient_by_mean(
    feedbacks: Mapping[int, Tensor], assignment: Mapping[int, Assignment], kappa: int
) -> list[Tensor]:
    learner = generated(kappa)
    return learner.gradients(aggregate(feedbacks, assignment, kappa))


def generated(kappa: int) -> GeneratorLearner:
    learner = make_learner()
    learner.generate(kappa)
    return learner


@pytest.mark.parametrize(("num_workers", "kappa"), [(1, 1), (1, 2), (2, 1), (4, 2), (10, 3)])
def test_the_mean_is_one_backward_pass_with_the_same_bits_as_ever(
    num_workers: int, kappa: int
) -> None:
    workers = list(range(1, num_workers + 1))
    feedbacks, assignment = feedbacks_of(workers), assign(workers, kappa)
    found, passes = gradient_of(rule_of("mean"), feedbacks, assignment, kappa)
    assert passes == 1
    assert equal_bits(found, gradient_by_mean(feedbacks, assignment, kappa))


@pytest.mark.parametrize("text", ROBUST)
@pytest.mark.parametrize(("answered", "kappa"), [([1], 1), ([2], 2), ([1, 2], 1), ([1, 3], 2)])
def test_one_or_two_answers_are_averaged(text: str, answered: list[int], kappa: int) -> None:
    feedbacks, assignment = feedbacks_of(answered), assign([1, 2, 3], kappa)
    found, passes = gradient_of(rule_of(text), feedbacks, assignment, kappa)
    assert passes == 1
    assert equal_bits(found, gradient_by_mean(feedbacks, assignment, kappa))


@pytest.mark.parametrize(
    ("text", "num_workers", "kappa", "passes"),
    [
        ("median", 10, 1, 1),
        ("median", 10, 2, 10),
        ("median", 10, 3, 10),
        ("median", 3, 2, 3),
        ("clip:2", 10, 1, 1),
        ("clip:2", 10, 3, 10),
        ("trimmed-mean:1", 10, 3, 1),
        ("trimmed-mean:2", 10, 2, 1),
        ("trimmed-mean:2", 10, 3, 10),
        ("trimmed-mean:1", 4, 2, 4),
        ("krum:1", 10, 2, 1),
        ("krum:1", 10, 3, 10),
        ("krum:3", 10, 1, 1),
        ("krum:3", 10, 2, 10),
        ("krum:1", 4, 2, 4),
    ],
)
def test_it_works_per_sample_only_where_no_group_can_be_outvoted(
    text: str, num_workers: int, kappa: int, passes: int
) -> None:
    workers = list(range(1, num_workers + 1))
    _, found = gradient_of(rule_of(text), feedbacks_of(workers), assign(workers, kappa), kappa)
    assert found == passes


@pytest.mark.parametrize(("answered", "passes"), [([1, 2, 3, 4, 5, 6], 1), ([1, 2, 3, 4, 6], 5)])
def test_the_form_depends_on_who_answered(answered: list[int], passes: int) -> None:
    assignment = assign([1, 2, 3, 4, 5, 6], 2)
    _, found = gradient_of(rule_of("trimmed-mean:1"), feedbacks_of(answered), assignment, 2)
    assert found == passes


def test_a_batch_weighs_as_much_as_it_has_answers() -> None:
    assignment = {n: Assignment(judge=0 if n < 4 else 2, train=1) for n in range(1, 8)}
    feedbacks = feedbacks_of(list(assignment))
    found = combine_samples(rule_of("median"), feedbacks, assignment, 3)
    for batch, workers in ((0, [1, 2, 3]), (2, [4, 5, 6, 7])):
        answers = np.stack([feedbacks[n].numpy() for n in workers])
        wanted = np.median(answers, axis=0) * len(workers) / 7
        np.testing.assert_allclose(found[batch].numpy(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(found[1], torch.zeros(BATCH_SIZE, *SHAPE))


@pytest.mark.parametrize(("num_workers", "kappa"), [(1, 1), (3, 2), (5, 2), (10, 3)])
def test_both_forms_of_the_mean_are_the_mean(num_workers: int, kappa: int) -> None:
    workers = list(range(1, num_workers + 1))
    feedbacks, assignment = feedbacks_of(workers), assign(workers, kappa)
    wanted = gradient_by_mean(feedbacks, assignment, kappa)
    per_sample = combine_samples(rule_of("mean"), feedbacks, assignment, kappa)
    of_each = gradient_of_each(generated(kappa), feedbacks, assignment, kappa)
    assert list(of_each) == workers
    for found in (
        flat(generated(kappa).gradients(per_sample)),
        torch.stack(list(of_each.values())).mean(0),
    ):
        torch.testing.assert_close(found, flat(wanted), rtol=0, atol=1e-6)


@pytest.mark.parametrize("text", ["mean", *ROBUST])
@pytest.mark.parametrize("kappa", [1, 2])
def test_the_order_of_arrival_does_not_change_a_bit_of_the_gradient(text: str, kappa: int) -> None:
    assignment = assign([1, 2, 3, 4], kappa)
    found = [
        gradient_of(rule_of(text), {n: images(n) for n in order}, assignment, kappa)[0]
        for order in ([1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3])
    ]
    assert equal_bits(found[0], found[1])
    assert equal_bits(found[0], found[2])


@pytest.mark.parametrize("text", ["median", "trimmed-mean:3", "krum:3", "clip:1"])
@pytest.mark.parametrize("hostile", [[1, 2, 3], [2, 5, 8], [3, 6, 9], [1, 4, 7]])
def test_three_of_ten_are_outvoted_also_as_a_whole_group(text: str, hostile: list[int]) -> None:
    workers = list(range(1, 11))
    assignment = assign(workers, 3)
    feedbacks = feedbacks_of(workers)
    truth = flat(gradient_by_mean(feedbacks, assignment, 3))
    honest = torch.stack(
        [
            flat(generated(3).gradients(aggregate({n: feedbacks[n]}, assignment, 3)))
            for n in workers
            if n not in hostile
        ]
    )
    for n in hostile:
        feedbacks[n] = -1e6 * feedbacks[n]
    found = flat(gradient_of(rule_of(text), feedbacks, assignment, 3)[0])
    assert flat(gradient_by_mean(feedbacks, assignment, 3)).norm() > 1e4 * truth.norm()
    if text in ("clip:1", "krum:3"):  # these bound a length; krum knows nobody yet
        assert found.norm() <= honest.norm(dim=1).max()
    else:
        assert (found >= honest.amin(0) - 1e-6).all()
        assert (found <= honest.amax(0) + 1e-6).all()


def flat(gradients: list[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("text", ROBUST)
@pytest.mark.parametrize("kappa", [1, 3])
def test_training_goes_on_with_any_rule(text: str, kappa: int) -> None:
    """The step that follows uses the gradient in place, and the next iteration generates anew."""
    learner, workers = make_learner(), list(range(1, 11))
    aggregation = Aggregation(rule_of(text))
    before = learner.generate(kappa)
    for seed in range(3):
        learner.generate(kappa)
        feedbacks = feedbacks_of(workers, seed)
        aggregation.update_gradient(learner, feedbacks, assign(workers, kappa), kappa)
        assert all(same_bits(feedbacks[n], images(100 * seed + n)) for n in workers)
        learner.step()
    assert not torch.equal(learner.generate(kappa).images, before.images)
    assert all(p.isfinite().all() for p in learner.model.parameters())


@pytest.mark.parametrize("kappa", [1, 2, 3])
def test_the_gradient_is_the_mean_over_those_who_answered(kappa: int) -> None:
    assignment = assign([1, 2, 3, 4], kappa)
    feedbacks = {n: images(n) for n in (1, 2, 4)}
    total = aggregate(feedbacks, assignment, kappa)
    assert total.shape == (kappa, BATCH_SIZE, *SHAPE)
    for batch in range(kappa):
        judged_it = [images(n) for n in (1, 2, 4) if (n - 1) % kappa == batch]
        wanted = sum(judged_it, torch.zeros_like(images(0))) / 3
        torch.testing.assert_close(total[batch], wanted)


def test_aggregating_leaves_the_feedback_as_it_was() -> None:
    feedbacks = {n: images(n) for n in (1, 2)}
    aggregate(feedbacks, assign([1, 2], 1), 1)
    assert all(same_bits(feedbacks[n], images(n)) for n in feedbacks)


def test_the_order_of_arrival_does_not_change_a_bit() -> None:
    assignment = assign([1, 2, 3, 4], 1)
    totals, sums = [], []
    for order in permutations([1, 2, 3, 4]):
        totals.append(aggregate({n: images(n) for n in order}, assignment, 1))
        sums.append(sum((images(n) for n in order), torch.zeros(1)))
    assert equal_bits(totals, [totals[0]] * len(totals))
    assert not equal_bits(sums, [sums[0]] * len(sums)), "these sums do not depend on their order"
