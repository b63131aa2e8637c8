"""Means of models are exact, and do not depend on who adds up what."""

from collections.abc import Mapping
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.gan.exact_sum import FEEDBACK, STEPS_PER_UNIT, PartialSum
from mdgan.gan.weighted_mean import average, weighted_sum
from tests.unit.gan.small import same_bits

thorough = settings(deadline=None, max_examples=150)
COST = Fraction(1, 3 * 10**13)
"""What rounding may cost, by the module's description."""
LENGTH = 7


@st.composite
def crowds(draw: st.DrawFn) -> tuple[dict[int, Tensor], dict[int, float]]:
    """Models below 512 in absolute value, and weights that add up to 1 but for rounding."""
    clients = draw(st.lists(st.integers(1, 50), min_size=1, max_size=9, unique=True))
    seed, exponent = draw(st.integers(0, 10**6)), draw(st.integers(-20, 8))
    random = torch.Generator().manual_seed(seed)
    models = {
        n: (torch.randn(LENGTH, generator=random) / 6).clamp(-1, 1) * 2.0**exponent for n in clients
    }
    raw = {n: draw(st.floats(1e-6, 1.0)) for n in clients}
    total = sum(raw.values())
    return models, {n: weight / total for n, weight in raw.items()}


def divided(
    models: Mapping[int, Tensor], weights: Mapping[int, float], hosts: Mapping[int, int]
) -> Tensor:
    """The mean if clients sit in these hosts, of which those with three or more add up."""
    by_host: dict[int, list[int]] = {}
    for client, host in hosts.items():
        by_host.setdefault(host, []).append(client)
    groups = [group for group in by_host.values() if len(group) >= 3]
    sums = [
        PartialSum(tuple(group), weighted_sum({n: models[n] for n in group}, weights))
        for group in groups
    ]
    alone = {n: models[n] for group in by_host.values() if len(group) < 3 for n in group}
    return average(alone, sums, weights)


def exact_mean(models: Mapping[int, Tensor], weights: Mapping[int, float]) -> list[Fraction]:
    total = sum(map(Fraction, weights.values()), Fraction(0))
    rows = {n: [Fraction(value) for value in model.tolist()] for n, model in models.items()}
    addends = [[Fraction(weights[n]) * value for value in row] for n, row in rows.items()]
    return [sum(column, Fraction(0)) / total for column in zip(*addends, strict=True)]


def ulp(value: float) -> Fraction:
    """The distance of float32 numbers around a value."""
    size = torch.tensor(abs(value), dtype=torch.float32)
    return Fraction(float(torch.nextafter(size, torch.tensor(float("inf"))))) - Fraction(
        float(size)
    )


@thorough
@given(crowds())
def test_it_is_the_exact_mean_rounded_once(
    crowd: tuple[dict[int, Tensor], dict[int, float]],
) -> None:
    models, weights = crowd
    mean = average(models, [], weights)
    assert mean.dtype == torch.float64
    for ours, exact in zip(mean.tolist(), exact_mean(models, weights), strict=True):
        assert abs(Fraction(ours) - exact) < len(models) * COST
        rounded = float(torch.tensor(ours, dtype=torch.float64).float())
        assert abs(Fraction(rounded) - exact) <= ulp(rounded) / 2 + len(models) * COST


@thorough
@given(crowds(), st.data())
def test_neither_order_nor_grouping_changes_a_bit(
    crowd: tuple[dict[int, Tensor], dict[int, float]], data: st.DataObject
) -> None:
    models, weights = crowd
    one_by_one = average(models, [], weights)
    order = data.draw(st.permutations(sorted(models)))
    shuffled = {client: models[client] for client in order}
    assert same_bits(average(shuffled, [], weights), one_by_one)
    hosts = {client: data.draw(st.integers(0, 2)) for client in order}
    if len(models) > 1:
        assert same_bits(divided(shuffled, weights, hosts), one_by_one)
        everybody = weighted_sum(shuffled, weights)
        alone = average({}, [PartialSum(tuple(order), everybody)], weights)
        assert same_bits(alone, one_by_one)


@pytest.mark.parametrize("weight", [1.0, 1e-300, 0.3, 0.0, 7.0])
def test_a_model_that_comes_alone_is_its_own_mean(weight: float) -> None:
    strange = [0.1, -0.0, 1e-45, 3.4e38, 1e-30, 600.1, float("nan")]
    model = torch.tensor(strange)
    mean = average({4: model}, [], {4: weight, 5: 1.0})
    assert same_bits(mean.float(), model)


def test_only_those_who_answered_count() -> None:
    models = {n: torch.full((2,), float(n)) for n in (1, 2, 3)}
    weights = {1: 0.5, 2: 0.25, 3: 0.25}
    assert average({1: models[1], 3: models[3]}, [], weights).tolist() == [5 / 3] * 2
    part = PartialSum((2, 3), weighted_sum({2: models[2], 3: models[3]}, weights))
    assert average({}, [part], weights).tolist() == [2.5] * 2
    assert average(models, [], weights).tolist() == [1.75] * 2


def test_models_are_left_as_they_are() -> None:
    models = {n: torch.full((2,), float(n)) for n in (1, 2)}
    kept = {n: model.clone() for n, model in models.items()}
    part = weighted_sum({1: models[1]}, {1: 1.0})
    average(models, [PartialSum((3, 4), part)], dict.fromkeys((1, 2, 3, 4), 0.25))
    assert all(same_bits(models[n], kept[n]) for n in models)
    assert part.tolist() == [1.0, 1.0]


def test_feedback_is_rounded_to_the_nearest_step() -> None:
    random = torch.Generator().manual_seed(0)
    answers = {n: 1e-4 * torch.randn(LENGTH, generator=random) ** 9 for n in (1, 2, 3)}
    unit = Fraction(STEPS_PER_UNIT)
    columns = zip(*(answer.tolist() for answer in answers.values()), strict=True)
    expected = [sum(round(Fraction(value) * unit) for value in column) for column in columns]
    assert FEEDBACK.in_steps(answers, {}).tolist() == expected
    assert FEEDBACK.add_up(answers, {}).tolist() == [float(steps / unit) for steps in expected]
