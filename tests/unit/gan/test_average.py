"""The moving average of a generator, against the weighted mean that it is."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mdgan.gan.average import GeneratorAverage
from mdgan.gan.regularizers.contract import regularized
from mdgan.gan.regularizers.spectral_norm import SpectralNorm
from tests.unit.gan.small import Z_DIM, equal_bits, make_generator


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
