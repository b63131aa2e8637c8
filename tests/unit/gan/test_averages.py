"""Means of generators over time, and of models over clients, against their formulas."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mdgan.gan.average import GeneratorAverage
from mdgan.gan.exact_sum import FEEDBACK, STEPS_PER_UNIT, PartialSum, average, weighted_sum
from mdgan.gan.regularizers.contract import regularized
from mdgan.gan.regularizers.spectral_norm import SpectralNorm
from tests.marks import examples
from tests.unit.gan.small import Z_DIM, equal_bits, make_generator, same_bits


@torch.no_grad()
def trained_on(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Other weights and buffers, as training leaves them; a copy in float64."""
    random = torch.Generator().manual_seed(seed)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=random))
        else:
            tensor.add_(1)
    return {name: tensor.double().clone() for name, tensor in model.state_dict().items()}


def bits(average: GeneratorAverage) -> list[Tensor]:
    return list(average.state().values())


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    halflife=st.sampled_from([0.5, 3.0, 100.0, 1e6]),
)
def test_it_is_the_weighted_mean_of_all_generators(lengths: list[int], halflife: float) -> None:
    """Every round counts for all of its iterations, each with half the weight of H later ones."""
    source, done, last = make_generator(), 0, sum(lengths)
    average = GeneratorAverage(source, make_generator(5), halflife)
    sums: dict[str, Tensor] = {}
    total = 0.0
    for seed, length in enumerate(lengths):
        weights = trained_on(source, seed)
        average.take_in(done, done + length)
        share = sum(2 ** (-(last - i) / halflife) for i in range(done + 1, done + length + 1))
        sums = {name: sums.get(name, 0.0) + share * weights[name] for name in weights}
        total += share
        done += length
    for name, mean in average.state().items():
        wanted = sums[name] / total if mean.is_floating_point() else weights[name]
        assert torch.allclose(mean.double(), wanted, rtol=1e-6, atol=1e-6), name


def test_the_first_generator_is_the_average_whatever_was_before() -> None:
    source = make_generator()
    average = GeneratorAverage(source, make_generator(1), 1e9)
    assert equal_bits(bits(average), list(source.state_dict().values()))
    trained_on(source, 0)
    average.take_in(0, 1)
    assert equal_bits(bits(average), list(source.state_dict().values()))


def test_restored_it_goes_on_as_if_never_stopped() -> None:
    source = make_generator()
    whole, cut = (GeneratorAverage(source, make_generator(), 7.0) for _ in range(2))
    for i in range(1, 10):
        trained_on(source, i)
        whole.take_in(i - 1, i)
        cut.take_in(i - 1, i)
        if i == 4:
            other = GeneratorAverage(source, make_generator(3), 7.0)
            other.load_state(cut.state())
            cut = other
    assert equal_bits(bits(whole), bits(cut))


def test_spectral_norm_holds_for_the_average_too() -> None:
    torch.manual_seed(0)
    source, other = (regularized(make_generator, [SpectralNorm()], "") for _ in range(2))
    average = GeneratorAverage(source, other, halflife=40.0)
    for iteration in range(60):
        with torch.no_grad():
            for weights in source.parameters():
                weights.add_(torch.randn(weights.shape), alpha=0.03)
            source(torch.randn(4, Z_DIM))
        average.take_in(iteration, iteration + 1)
    modules = average.model.eval().modules()
    layers = [each for each in modules if parametrize.is_parametrized(each)]
    assert layers
    for layer in layers:
        weight: Any = layer.weight
        assert float(torch.linalg.matrix_norm(weight.detach(), 2)) == pytest.approx(1, abs=0.03)


# Models of clients.


thorough = settings(deadline=None, max_examples=examples(60))
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
    before = {n: model.clone() for n, model in models.items()}
    part = weighted_sum({1: models[1]}, {1: 1.0})
    average(models, [PartialSum((3, 4), part)], dict.fromkeys((1, 2, 3, 4), 0.25))
    assert all(same_bits(models[n], before[n]) for n in models)
    assert part.tolist() == [1.0, 1.0]


def test_feedback_is_rounded_to_the_nearest_step() -> None:
    random = torch.Generator().manual_seed(0)
    answers = {n: 1e-4 * torch.randn(LENGTH, generator=random) ** 9 for n in (1, 2, 3)}
    unit = Fraction(STEPS_PER_UNIT)
    columns = zip(*(answer.tolist() for answer in answers.values()), strict=True)
    expected = [sum(round(Fraction(value) * unit) for value in column) for column in columns]
    assert FEEDBACK.in_steps(answers, {}).tolist() == expected
    assert FEEDBACK.add_up(answers, {}).tolist() == [float(steps / unit) for steps in expected]
