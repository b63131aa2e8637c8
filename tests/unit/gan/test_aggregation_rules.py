"""Rules on bare answers: against references, and against hostile answers."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from mdgan.gan.aggregation_form import AggregationRule, parse_robust_rule
from mdgan.gan.aggregation_rules import combine
from mdgan.gan.randomness import generator_for
from tests.unit.gan.small import BATCH_SIZE

Array = NDArray[np.float64]

ROBUST = ["median", "trimmed-mean:1", "trimmed-mean:3", "krum:1", "krum:3", "clip:1", "clip:2.5"]
seeds = st.integers(0, 2**32)


def rule_of(text: str) -> AggregationRule:
    return parse_robust_rule(text)


def random_answers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator_for(seed, "answers"))


# What each rule means, written apart from torch: m answers [m, d] to one sample.


def mean_of(answers: Array) -> Array:
    return np.asarray(answers.sum(0) / len(answers))


def median_of(answers: Array) -> Array:
    return np.asarray(np.median(answers, axis=0))


def trimmed(num_hostile: int) -> Callable[[Array], Array]:
    def reference(answers: Array) -> Array:
        before = [sorted(column)[num_hostile : len(column) - num_hostile] for column in answers.T]
        return np.array([sum(values) / len(values) for values in before])

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
        return mean_of(answers[best[: len(answers) - num_hostile]])

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
    combination = combine(rule_of(text), answers)
    assert combination.shape == (BATCH_SIZE, 7)
    wanted = np.stack([reference(answers[:, s].double().numpy()) for s in range(BATCH_SIZE)])
    np.testing.assert_allclose(combination.numpy(), wanted, rtol=0, atol=1e-6)


# From four: the nearest two of three answers have equal sums, and krum takes the first of them.
@given(seeds, st.integers(1, 4), st.integers(0, 4), st.floats(30, 1e12), st.booleans())
def test_krum_averages_honest_answers_alone(
    seed: int, num_hostile: int, more: int, far: float, together: bool
) -> None:
    """Those that are far off are left out, also where they stand together."""
    num_answers = 2 * num_hostile + 3 + more
    answers = random_answers(seed, num_answers, 2, 3)
    lies = random_answers(seed + 1, num_hostile, 2, 3).sign() * far
    answers[:num_hostile] = lies[:1] if together else lies
    combination = combine(rule_of(f"krum:{num_hostile}"), answers)
    torch.testing.assert_close(combination, answers[num_hostile:].mean(0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", ROBUST)
def test_answers_that_are_zero_are_answers(text: str) -> None:
    combination = combine(rule_of(text), torch.zeros(9, 2, 3))
    assert torch.equal(combination, torch.zeros(2, 3))
