"""What a discriminator that moves tells of the last batch: with moments its gradient, exactly."""

from itertools import islice

import pytest

from benchmarks.swap_tells import digits, make_settings, observers, steps, told


@pytest.mark.slow
def test_moments_tell_the_last_gradient_and_weights_alone_do_not() -> None:
    settings = make_settings(0)
    assert settings.training.policy("discriminator").betas[0] == 0.5
    seen, guesses = list(islice(steps(settings), 8)), observers(settings)
    exact = told(guesses["two states with moments, one step apart"], seen, digits())
    assert exact.error < 1e-6
    assert exact.found == 1.0
    far = told(guesses["two states of weights, 20 step(s) apart"], seen, digits())
    assert far.error > 0.1
    assert far.found < 0.5
