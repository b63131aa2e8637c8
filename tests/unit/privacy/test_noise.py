"""Noise on a lattice: its distribution, and the values that are released for any sum."""

from math import log2, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mdgan.privacy.noise import SENSITIVITY, lattice_step, with_noise
from mdgan.privacy.random_stream import step_key, uniform
from tests.claims.registry import claim
from tests.marks import examples

RARELY = 1e-6
"""The probability with which a true statement about random numbers would fail; and since keys are
fixed, each passes always or never."""


def key(number: int = 0) -> bytes:
    return step_key(b"a secret", number, "noise")


@settings(max_examples=examples(24))
@given(st.floats(1e-6, 1e6), st.integers(1, 10**8))
@claim("steps", "adds noise of N(0, σ²C²) to the sum.")
def test_a_step_is_a_power_of_two_and_its_charge_is_paid(clip: float, count: int) -> None:
    step = lattice_step(clip, count)
    assert log2(step) == round(log2(step))
    assert clip / 2**13 < sqrt(count) * step <= clip * (SENSITIVITY - 1) / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@claim("steps", "adds noise of N(0, σ²C²) to the sum.")
def test_what_is_released_lies_on_the_lattice(dtype: torch.dtype) -> None:
    total, clip = torch.randn(5001, dtype=dtype) * 0.01, 0.7
    step = lattice_step(clip, len(total))
    released = with_noise(total.clone(), clip, 0.3, key()).double() / step
    assert torch.equal(released, released.round())
    scaled = with_noise(total.clone(), clip, 0.3, key(), 0.25).double() / (step * 0.25)
    assert torch.equal(scaled, scaled.round())
    assert float((scaled - total / step).std()) < 2 * 0.3 * clip / step
    assert float((released - total / step).abs().max()) > 1


@pytest.mark.parametrize(("clip", "noise"), [(1.0, 1.0), (0.01, 20.0), (30.0, 200.0)])
@claim("steps", "adds noise of N(0, σ²C²) to the sum.")
def test_noise_is_normal_with_the_deviation_that_is_charged(clip: float, noise: float) -> None:
    random, count = torch.Generator().manual_seed(0), 100_001  # the noise depends on the sum
    total = torch.randn(count, generator=random, dtype=torch.float64) * clip
    drawn = with_noise(total.clone(), clip, noise, key()) - total
    drawn /= clip * noise * SENSITIVITY
    assert stats.kstest(drawn.numpy(), "norm").pvalue > RARELY
    squares = float(drawn.square().sum())
    assert RARELY / 2 < stats.chi2.sf(squares, count) < 1 - RARELY / 2
    assert abs(float(drawn.mean())) * sqrt(count) < stats.norm.isf(RARELY / 2)
    for apart in (1, 2, 1 << 15, 50_000):
        together = float((drawn[:-apart] * drawn[apart:]).mean()) * sqrt(count - apart)
        assert abs(together) < stats.norm.isf(RARELY / 2)


def test_tails_are_as_heavy_as_they_should_be() -> None:
    drawn = with_noise(torch.zeros(4_000_000, dtype=torch.float64), 1.0, 1.0, key())
    for far in (3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(far / SENSITIVITY) * len(drawn)
        beyond = int((drawn.abs() > far).sum())
        assert abs(beyond - expected) < stats.norm.isf(RARELY / 2) * sqrt(expected) + 1


def test_the_same_key_gives_other_noise_to_another_sum() -> None:
    """As where a copy of a ledger is used: the same noise would cancel, and leave the samples."""
    first, second = torch.zeros(1000), torch.zeros(1000)
    second[500] = 2.0**-20
    apart = with_noise(first.clone(), 1.0, 1.0, key()) - with_noise(second, 1.0, 1.0, key())
    assert 1 < float(apart.std()) < 2
    again = with_noise(first.clone(), 1.0, 1.0, key())
    assert torch.equal(with_noise(first.clone(), 1.0, 1.0, key()), again)
    # With other settings 2·r₁ − r₂ would be the sum.
    total = torch.randn(1000, dtype=torch.float64) * 0.01
    one, other = (with_noise(total.clone(), 1.0, sigma, key()) for sigma in (20.0, 40.0))
    assert float((2 * one - other).std()) > 20


def test_numbers_of_steps_and_uses_have_nothing_in_common() -> None:
    keys = {step_key(b"s", step, use) for step in range(50) for use in ("noise", "batch")}
    assert len(keys) == 100
    zeros = torch.zeros(20_000)
    first, second = (with_noise(zeros.clone(), 1.0, 1.0, key(number)) for number in (0, 1))
    assert abs(float((first * second).mean())) * sqrt(20_000) < stats.norm.isf(RARELY / 2)
    spread = uniform(step_key(b"s", 0, "batch"), 20_000)
    assert 0 < float(spread.min()) <= float(spread.max()) <= 1
    assert stats.kstest(spread.numpy(), "uniform").pvalue > RARELY
