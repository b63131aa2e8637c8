"""Learning rates by iteration."""

from math import cos, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.gan.optimizer_settings import SCHEDULES, RateSchedule

lengths = st.integers(1, 10**6)


@given(st.sampled_from(SCHEDULES), st.integers(0, 100), lengths)
def test_a_rate_rises_in_the_warmup_and_never_after_it(
    shape: str, warmup: int, num_iterations: int
) -> None:
    schedule = RateSchedule(shape, warmup, num_iterations)
    iterations = range(1, min(num_iterations, 300) + 1)
    factors = [schedule.factor(i) for i in iterations]
    assert all(0 < factor <= 1 for factor in factors)
    risen, fallen = factors[:warmup], factors[warmup:]
    assert risen == sorted(risen)
    assert fallen == sorted(fallen, reverse=True)
    if len(factors) > warmup:
        assert fallen[0] == 1.0
        assert not warmup or risen[-1] == 1.0


@given(st.integers(1, 10**9), lengths)
def test_a_constant_rate_is_itself_bit_for_bit(iteration: int, num_iterations: int) -> None:
    assert 2e-4 * RateSchedule("constant", 0, num_iterations).factor(iteration) == 2e-4


def test_by_the_formula() -> None:
    linear, cosine = (RateSchedule(shape, 2, 10) for shape in ("linear", "cosine"))
    assert [linear.factor(i) for i in (1, 2)] == [0.5, 1.0]
    for done in range(8):
        assert linear.factor(3 + done) == pytest.approx(1 - done / 8)
        assert cosine.factor(3 + done) == pytest.approx((1 + cos(pi * done / 8)) / 2)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 10, 20])
def test_beyond_the_end_there_is_nothing_left(shape: str, warmup: int) -> None:
    schedule = RateSchedule(shape, warmup, 10)
    assert schedule.factor(max(warmup, 10) + 10) == pytest.approx(0)
    assert schedule.factor(-3) == schedule.factor(1)
