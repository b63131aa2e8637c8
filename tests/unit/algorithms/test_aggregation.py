"""Rules of aggregation: against references, against hostile answers, and which form is used."""

from collections.abc import Callable, Mapping
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from mdgan.algorithms.aggregation import (
    AggregationRule,
    aggregate,
    combine,
    combine_gradients,
    combine_samples,
    parse_aggregation,
    update_gradient,
)
from mdgan.algorithms.mdgan import Assignment, GeneratorLearner, assign
from mdgan.algorithms.randomness import generator_for
from mdgan.errors import BadInput
from mdgan.experiment import Experiment
from tests.unit.algorithms.small import (
    BATCH_SIZE,
    SHAPE,
    equal_bits,
    images,
    make_learner,
    same_bits,
)

Array = NDArray[np.float64]

ROBUST = ["median", "trimmed-mean:1", "trimmed-mean:3", "krum:1", "krum:3", "clip:1", "clip:2.5"]
seeds = st.integers(0, 2**32)


def rule_of(text: str) -> AggregationRule:
    return parse_aggregation(text, 1000)


def random_answers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator_for(seed, "answers"))


# What each rule means, written apart from torch: m answers [m, d] to one sample.


def mean_of(answers: Array) -> Array:
    return np.asarray(answers.sum(0) / len(answers))


def median_of(answers: Array) -> Array:
    return np.asarray(np.median(answers, axis=0))


def trimmed(num_hostile: int) -> Callable[[Array], Array]:
    def reference(answers: Array) -> Array:
        kept = [sorted(column)[num_hostile : len(column) - num_hostile] for column in answers.T]
        return np.array([sum(values) / len(values) for values in kept])

    return reference


def krum(num_hostile: int) -> Callable[[Array], Array]:
    def reference(answers: Array) -> Array:
        sums = []
        for one in range(len(answers)):
            to_others = [
                float(((answers[one] - answers[other]) ** 2).sum())
                for other in range(len(answers))
                if other != one
            ]
            sums.append(sum(sorted(to_others)[: len(answers) - num_hostile - 2]))
        best = sorted(range(len(answers)), key=lambda one: sums[one])
        return mean_of(answers[best[: len(answers) - num_hostile - 2]])

    return reference


def clipped(factor: float) -> Callable[[Array], Array]:
    def reference(answers: Array) -> Array:
        norms = [float(np.sqrt((answer**2).sum())) for answer in answers]
        limit = factor * float(np.median(norms))
        return np.asarray(
            sum(a * min(1.0, limit / n) for a, n in zip(answers, norms, strict=True)) / len(answers)
        )

    return reference


@pytest.mark.parametrize(
    ("text", "num_answers", "reference"),
    [
        ("mean", 5, mean_of),
        ("median", 3, median_of),
        ("median", 7, median_of),
        ("median", 10, median_of),
        ("trimmed-mean:1", 3, trimmed(1)),
        ("trimmed-mean:3", 10, trimmed(3)),
        ("krum:1", 5, krum(1)),
        ("krum:1", 10, krum(1)),
        ("krum:3", 10, krum(3)),
        ("median", 33, median_of),
        ("trimmed-mean:3", 40, trimmed(3)),
        ("clip:1", 7, clipped(1.0)),
        ("clip:0.5", 10, clipped(0.5)),
        ("clip:1.2", 10, clipped(1.2)),
        # Fewer answers than F needs: the largest F that fits, at last the mean.
        ("trimmed-mean:3", 6, trimmed(2)),
        ("trimmed-mean:3", 4, trimmed(1)),
        ("trimmed-mean:3", 3, trimmed(1)),
        ("krum:3", 8, krum(2)),
        ("krum:3", 5, krum(1)),
        ("krum:3", 4, krum(0)),
        ("krum:3", 3, krum(0)),
        *((text, num, mean_of) for text in ROBUST for num in (1, 2)),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_every_sample_is_combined_as_the_rule_says(
    text: str, num_answers: int, reference: Callable[[Array], Array], seed: int
) -> None:
    answers = random_answers(seed, num_answers, BATCH_SIZE, 7)
    answers[0] *= 5
    found = combine(rule_of(text), answers)
    assert found.shape == (BATCH_SIZE, 7)
    wanted = np.stack([reference(answers[:, s].double().numpy()) for s in range(BATCH_SIZE)])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-6)


# From four: the nearest two of three answers have equal sums, and krum takes the first of them.
@given(seeds, st.integers(4, 12), st.permutations(range(12)), st.sampled_from(["mean", *ROBUST]))
def test_it_does_not_matter_who_gave_which_answer(
    seed: int, num_answers: int, order: list[int], text: str
) -> None:
    answers = random_answers(seed, num_answers, 2, 5)
    other = answers[[position for position in order if position < num_answers]]
    torch.testing.assert_close(
        combine(rule_of(text), other), combine(rule_of(text), answers), rtol=0, atol=1e-6
    )


@given(seeds, st.integers(1, 12), st.sampled_from(["mean", *ROBUST]))
def test_equal_answers_are_the_answer(seed: int, num_answers: int, text: str) -> None:
    answer = random_answers(seed, 3, 5)
    found = combine(rule_of(text), answer.expand(num_answers, 3, 5))
    torch.testing.assert_close(found, answer, rtol=0, atol=1e-6)


hostile_values = st.one_of(
    st.floats(-(2.0**50), 2.0**50, width=32), st.sampled_from([0.0, 1e15, -1e15, 1e-30])
)


@given(
    seeds, st.integers(3, 12), st.integers(0, 5), st.lists(hostile_values, min_size=3, max_size=3)
)
def test_lies_of_a_minority_stay_within_what_honest_workers_say(
    seed: int, num_answers: int, lies: int, values: list[float]
) -> None:
    lies = min(lies, (num_answers - 1) // 2)
    answers = random_answers(seed, num_answers, 2, 3)
    answers[:lies] = torch.tensor(values)
    honest = answers[lies:]
    for text in ["median", *([f"trimmed-mean:{lies}"] if lies else [])]:
        found = combine(rule_of(text), answers)
        assert (found >= honest.amin(0) - 1e-6).all()
        assert (found <= honest.amax(0) + 1e-6).all()


@given(seeds, st.integers(1, 4), st.integers(0, 4), st.floats(30, 1e12), st.booleans())
def test_krum_averages_honest_answers_alone(
    seed: int, num_hostile: int, more: int, far: float, together: bool
) -> None:
    """Those that are far off are left out, also where they stand together."""
    num_answers = 2 * num_hostile + 3 + more
    answers = random_answers(seed, num_answers, 2, 3)
    lies = random_answers(seed + 1, num_hostile, 2, 3).sign() * far
    answers[:num_hostile] = lies[:1] if together else lies
    found = combine(rule_of(f"krum:{num_hostile}"), answers)
    for sample in range(2):
        candidates = combinations(answers[num_hostile:, sample], num_answers - num_hostile - 2)
        assert any(
            torch.stack(few).mean(0).sub(found[sample]).abs().max() < 1e-5 for few in candidates
        )


@given(seeds, st.floats(0.1, 10), st.floats(1e3, 1e18))
def test_clipping_bounds_what_a_minority_weighs(seed: int, factor: float, size: float) -> None:
    answers = random_answers(seed, 7, 2, 3)
    answers[:3] *= size
    honest = answers[3:].norm(dim=2).amax(0)
    found = combine(AggregationRule("clip", factor), answers)
    assert (found.norm(dim=1) <= max(factor, 1) * honest * (1 + 1e-5)).all()


@pytest.mark.parametrize("text", ROBUST)
def test_answers_that_are_zero_are_answers(text: str) -> None:
    found = combine(rule_of(text), torch.zeros(9, 2, 3))
    assert torch.equal(found, torch.zeros(2, 3))


# Feedback: which form is used, and what it gives.


def feedbacks_of(workers: list[int], seed: int = 0) -> dict[int, Tensor]:
    return {n: images(100 * seed + n) for n in workers}


def gradient_of(
    rule: AggregationRule,
    feedbacks: Mapping[int, Tensor],
    assignment: Mapping[int, Assignment],
    kappa: int,
) -> tuple[list[Tensor], int]:
    """What `update_gradient` leaves in place, and the number of backward passes it took."""
    learner, passes = make_learner(), 0

    def count(_gradient: Tensor) -> None:
        nonlocal passes
        passes += 1

    learner.generator.register_forward_hook(lambda _model, _given, x: x.register_hook(count) and x)
    learner.generate(kappa)
    update_gradient(rule, learner, feedbacks, assignment, kappa)
    gradients = [p.grad.clone() for p in learner.generator.parameters() if p.grad is not None]
    assert len(gradients) == len(list(learner.generator.parameters()))
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
    mean = rule_of("mean")
    per_sample = combine_samples(mean, feedbacks, assignment, kappa)
    for found in (
        generated(kappa).gradients(per_sample),
        combine_gradients(mean, generated(kappa), feedbacks, assignment, kappa),
    ):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


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
    if text == "clip:1":
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
    before = learner.generate(kappa)
    for seed in range(3):
        learner.generate(kappa)
        feedbacks = feedbacks_of(workers, seed)
        update_gradient(rule_of(text), learner, feedbacks, assign(workers, kappa), kappa)
        assert all(same_bits(feedbacks[n], images(100 * seed + n)) for n in workers)
        learner.step()
    assert not torch.equal(learner.generate(kappa), before)
    assert all(p.isfinite().all() for p in learner.generator.parameters())


# What `--aggregation` accepts.


@pytest.mark.parametrize(
    ("text", "num_workers", "rule"),
    [
        ("mean", 1, ("mean", 0)),
        ("median", 3, ("median", 0)),
        ("trimmed-mean:3", 7, ("trimmed-mean", 3)),
        ("krum:3", 9, ("krum", 3)),
        ("clip:2", 3, ("clip", 2)),
        ("clip:1e-1", 10, ("clip", 0.1)),
    ],
)
def test_rules_are_read(text: str, num_workers: int, rule: tuple[str, float]) -> None:
    assert parse_aggregation(text, num_workers) == rule
    world_size = max(2, num_workers + 1)
    assert Experiment(world_size=world_size, aggregation=text).aggregation == text


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
            (text, 10, "not one of mean, median, trimmed-mean:F, krum:F, clip:C")
            for text in (
                *("", "Mean", "average", "krum", "krum:", "krum:-1", "krum:1.5", "krum:²"),
                *(
                    "median:1",
                    "mean:",
                    "trimmed-mean",
                    "clip",
                    "clip:nan",
                    "krum:1:2",
                    "mean\nmean",
                ),
                f"krum:{'9' * 5000}",
            )
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(text: str, num_workers: int, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_aggregation(text, num_workers)
    shown = " ".join(text.splitlines())
    assert str(caught.value).startswith(f"--aggregation {shown}: {reason}")
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="--aggregation "):
        Experiment(world_size=num_workers + 1, aggregation=text)


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
