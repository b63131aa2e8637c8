"""Feedback becomes a gradient: the rules, their forms of answers, and their results."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.families.mdgan.aggregation import Aggregation, combine_groups, gradient_of_each
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign, mean_feedback
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.aggregation_form import AGGREGATION_FORMS, AggregationRule, parse_aggregation
from tests.claims.registry import claim
from tests.unit.gan.small import BATCH_SIZE, SHAPE, equal_bits, images, make_learner

rule_of = parse_aggregation
ROBUST = ["median", "trimmed-mean:1", "trimmed-mean:3", "krum:1", "krum:3", "clip:1", "clip:2.5"]


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
    return learner.gradients(mean_feedback(feedbacks, assignment, kappa))


def generated(kappa: int) -> GeneratorLearner:
    learner = make_learner()
    learner.generate(kappa)
    return learner


@pytest.mark.parametrize(("num_workers", "kappa"), [(1, 1), (1, 2), (2, 1), (4, 2), (10, 3)])
@claim("one-backward", "then one backward pass of X, whatever N is.")
def test_the_mean_is_one_backward_pass_with_the_same_bits_as_ever(
    num_workers: int, kappa: int
) -> None:
    workers = list(range(1, num_workers + 1))
    feedbacks, assignment = feedbacks_of(workers), assign(workers, kappa)
    gradient, passes = gradient_of(rule_of("mean"), feedbacks, assignment, kappa)
    assert passes == 1
    assert equal_bits(gradient, gradient_by_mean(feedbacks, assignment, kappa))


@pytest.mark.parametrize("text", ROBUST)
@pytest.mark.parametrize(("answered", "kappa"), [([1], 1), ([2], 2), ([1, 2], 1), ([1, 3], 2)])
def test_one_or_two_answers_are_averaged(text: str, answered: list[int], kappa: int) -> None:
    feedbacks, assignment = feedbacks_of(answered), assign([1, 2, 3], kappa)
    gradient, passes = gradient_of(rule_of(text), feedbacks, assignment, kappa)
    assert passes == 1
    assert equal_bits(gradient, gradient_by_mean(feedbacks, assignment, kappa))


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
    _, passes_found = gradient_of(
        rule_of(text), feedbacks_of(workers), assign(workers, kappa), kappa
    )
    assert passes_found == passes


@pytest.mark.parametrize(("answered", "passes"), [([1, 2, 3, 4, 5, 6], 1), ([1, 2, 3, 4, 6], 5)])
def test_the_form_depends_on_who_answered(answered: list[int], passes: int) -> None:
    assignment = assign([1, 2, 3, 4, 5, 6], 2)
    _, passes_found = gradient_of(rule_of("trimmed-mean:1"), feedbacks_of(answered), assignment, 2)
    assert passes_found == passes


def test_a_batch_weighs_as_much_as_it_has_answers() -> None:
    assignment = {n: Assignment(judge=0 if n < 4 else 2, train=1) for n in range(1, 8)}
    feedbacks = feedbacks_of(list(assignment))
    combination = combine_groups(rule_of("median"), feedbacks, assignment, 3)
    for batch, workers in ((0, [1, 2, 3]), (2, [4, 5, 6, 7])):
        answers = np.stack([feedbacks[n].numpy() for n in workers])
        wanted = np.median(answers, axis=0) * len(workers) / 7
        np.testing.assert_allclose(combination[batch].numpy(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(combination[1], torch.zeros(BATCH_SIZE, *SHAPE))


@pytest.mark.parametrize(("num_workers", "kappa"), [(1, 1), (3, 2), (5, 2), (10, 3)])
def test_both_forms_of_the_mean_are_the_mean(num_workers: int, kappa: int) -> None:
    workers = list(range(1, num_workers + 1))
    feedbacks, assignment = feedbacks_of(workers), assign(workers, kappa)
    wanted = gradient_by_mean(feedbacks, assignment, kappa)
    per_sample = combine_groups(rule_of("mean"), feedbacks, assignment, kappa)
    of_each = gradient_of_each(generated(kappa), feedbacks, assignment, kappa)
    assert list(of_each) == workers
    for each in (
        flat(generated(kappa).gradients(per_sample)),
        torch.stack(list(of_each.values())).mean(0),
    ):
        torch.testing.assert_close(each, flat(wanted), rtol=0, atol=1e-6)


@pytest.mark.parametrize("text", ["mean", *ROBUST])
@pytest.mark.parametrize("kappa", [1, 2])
def test_the_order_of_arrival_does_not_change_a_bit_of_the_gradient(text: str, kappa: int) -> None:
    assignment = assign([1, 2, 3, 4], kappa)
    results = [
        gradient_of(rule_of(text), {n: images(n) for n in order}, assignment, kappa)[0]
        for order in ([1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3])
    ]
    assert equal_bits(results[0], results[1])
    assert equal_bits(results[0], results[2])


@pytest.mark.parametrize("text", ["median", "trimmed-mean:3", "krum:3", "clip:1"])
@pytest.mark.parametrize("hostile", [[1, 2, 3], [2, 5, 8], [3, 6, 9], [1, 4, 7]])
def test_three_of_ten_are_outvoted_also_as_a_whole_group(text: str, hostile: list[int]) -> None:
    workers = list(range(1, 11))
    assignment = assign(workers, 3)
    feedbacks = feedbacks_of(workers)
    truth = flat(gradient_by_mean(feedbacks, assignment, 3))
    honest = torch.stack(
        [
            flat(generated(3).gradients(mean_feedback({n: feedbacks[n]}, assignment, 3)))
            for n in workers
            if n not in hostile
        ]
    )
    for n in hostile:
        feedbacks[n] = -1e6 * feedbacks[n]
    gradient = flat(gradient_of(rule_of(text), feedbacks, assignment, 3)[0])
    assert flat(gradient_by_mean(feedbacks, assignment, 3)).norm() > 1e4 * truth.norm()
    if text in ("clip:1", "krum:3"):  # these bound a length; krum has no record of workers yet
        assert gradient.norm() <= honest.norm(dim=1).max()
    else:
        assert (gradient >= honest.amin(0) - 1e-6).all()
        assert (gradient <= honest.amax(0) + 1e-6).all()


def flat(gradients: list[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("kappa", [1, 2, 3])
def test_the_gradient_is_the_mean_over_those_who_answered(kappa: int) -> None:
    assignment = assign([1, 2, 3, 4], kappa)
    feedbacks = {n: images(n) for n in (1, 2, 4)}
    total = mean_feedback(feedbacks, assignment, kappa)
    assert total.shape == (kappa, BATCH_SIZE, *SHAPE)
    for batch in range(kappa):
        judged_it = [images(n) for n in (1, 2, 4) if (n - 1) % kappa == batch]
        wanted = sum(judged_it, torch.zeros_like(images(0))) / 3
        torch.testing.assert_close(total[batch], wanted)


@pytest.mark.parametrize(
    ("text", "num_workers", "rule"),
    [
        ("mean", 1, ("mean", 0)),
        ("median", 3, ("median", 0)),
        ("trimmed-mean:3", 7, ("trimmed-mean", 3)),
        ("krum:3", 9, ("krum", 3)),
        ("clip:2", 3, ("clip", 2)),
        ("clip:1e-1", 10, ("clip", 0.1)),
        ("f2u", 1, ("f2u", 0)),
        ("f2a", 1, ("f2a", 1)),
        ("f2a:2.5", 2, ("f2a", 2.5)),
        ("f2a:1e300", 10, ("f2a", 1e300)),
    ],
)
def test_rules_are_read(text: str, num_workers: int, rule: tuple[str, float]) -> None:
    assert parse_aggregation(text) == rule
    settings = MDGANSettings.read({"world_size": num_workers + 1, "aggregation": text})
    assert settings.aggregation == rule
    assert parse_aggregation(str(settings.aggregation)) == rule


@pytest.mark.parametrize(
    ("text", "num_workers", "reason"),
    [
        ("krum:4", 10, "needs at least 11 workers to outvote 4, not 10"),
        ("krum:1", 4, "needs at least 5 workers to outvote 1, not 4"),
        ("trimmed-mean:5", 10, "needs at least 11 workers to outvote 5, not 10"),
        ("median", 2, "needs at least 3 workers to outvote 1, not 2"),
        ("clip:1", 1, "needs at least 3 workers"),
        ("krum:0", 10, "F must be at least 1"),
        ("trimmed-mean:0", 10, "F must be at least 1"),
        ("clip:0", 10, "C must be a number above 0"),
        ("clip:-1", 10, "C must be a number above 0"),
        ("clip:1e999", 10, "C must be a number above 0"),
        ("clip:1e", 10, "C must be a number above 0"),
        *(
            (text, 10, "LAMBDA must be a number above 0; at 0 it is mean")
            for text in ("f2a:0", "f2a:-1", "f2a:1e999", "f2a:1e-999", "f2a:1e", "f2a:+-")
        ),
        *(
            (text, 10, f"not one of {AGGREGATION_FORMS}")
            for text in (
                *("", "Mean", "average", "krum", "krum:", "krum:-1", "krum:1.5", "krum:²"),
                *("median:1", "mean:", "trimmed-mean", "clip", "clip:nan", "krum:1:2"),
                f"krum:{'9' * 5000}",
                *("f2u:1", "f2u:", "f2a:", "f2a:nan", "f2a:inf", "f2a:1:2", "F2U", "f2"),
            )
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(text: str, num_workers: int, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        MDGANSettings.read({"world_size": num_workers + 1, "aggregation": text})
    assert str(caught.value).startswith(f"--aggregation {text}: {reason}")


def test_a_rule_of_two_lines_is_refused_in_one() -> None:
    with pytest.raises(ValueError, match="not one of"):
        parse_aggregation("mean\nmean")
    with pytest.raises(BadInput) as caught:
        MDGANSettings.read({"aggregation": "mean\nmean"})
    assert str(caught.value).startswith("--aggregation mean mean: ")


def test_the_forms_are_listed_and_each_can_be_given() -> None:
    forms = AGGREGATION_FORMS.replace("LAMBDA", "1").replace("F", "1").replace("C", "1")
    rules = [parse_aggregation(form) for form in forms.split(", ")]
    assert [rule.name for rule in rules if rule.needs_verdicts] == ["f2u", "f2a", "f2a"]
    assert {rule.name for rule in rules if not rule.withstands(100)} == {"mean", "f2u", "f2a"}
