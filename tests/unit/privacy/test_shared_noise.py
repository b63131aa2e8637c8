"""What a sum must contain if each certificate adds a part of its noise."""

from math import fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.privacy.shared_noise import NoiseSharing, variance_of_part
from tests.claims.registry import claim

NOISES = st.floats(0.5, 50.0)


@given(st.lists(NOISES, min_size=1, max_size=12), st.integers(0, 3))
def test_the_sum_has_what_each_is_charged_for(noises: list[float], num_more: int) -> None:
    """Also if some have been in earlier runs, and if more take part than M."""
    sharers, least = max(1, len(noises) - num_more), min(noises)
    parts = [variance_of_part(noise, least, sharers) for noise in noises]
    assert fsum(parts) >= max(noises) ** 2 * (1 - 1e-12)
    assert all(part >= least**2 / sharers * (1 - 1e-9) for part in parts)


@given(NOISES, st.integers(1, 100), st.integers(0, 100))
@claim(
    "noise-left",
    "Where c of M certificates work together with the server, the noise that is left has the "
    "variance σ²(M − c)/M",
)
def test_some_that_tell_what_they_added_leave_the_part_of_the_others(
    noise: float, sharers: int, liars: int
) -> None:
    honest = max(0, sharers - liars)
    left = honest * variance_of_part(noise, noise, sharers)
    assert left == pytest.approx(noise**2 * honest / sharers)


@pytest.mark.parametrize(
    ("sharing", "present", "lacks"),
    [
        (NoiseSharing(10), (10, 4, 4), ""),
        (NoiseSharing(10), (9, 4, 4), "all but 9 of the 10 workers"),
        (NoiseSharing(10), (10, 4, 5), "all but 4 of the 5 certificates"),
        (NoiseSharing(10, None, 5), (10, 4, 4), "all but 4 of the 5 certificates"),
        (NoiseSharing(10, 4), (4, 4, 9), ""),
        (NoiseSharing(10, 4), (9, 3, 4), "all but 3 of the 4 certificates"),
        (NoiseSharing(10, 4, 5), (10, 4, 9), "all but 4 of the 5 certificates"),
    ],
)
def test_what_a_sum_lacks(sharing: NoiseSharing, present: tuple[int, int, int], lacks: str) -> None:
    result = sharing.lacking(*present)
    assert result.startswith(lacks)
    assert bool(result) == bool(lacks)


def test_more_sharers_than_have_come_are_refused() -> None:
    NoiseSharing(10, 4).check(4)
    NoiseSharing(10).check(1)
    with pytest.raises(BadInput, match="noise_sharers=5: all workers have 4 certificate"):
        NoiseSharing(10, 5).check(4)


def test_only_algorithms_with_such_sums_share_noise() -> None:
    private = {"dp_noise": 1.0, "dp_delta": 1e-5, "world_size": 9, "secure_aggregation": True}
    question: dict[str, dict[str, Any]] = {
        "mdgan": {},
        "moments": {"noise_sharers": 5},
        "fl-gan": {"dp_unit": "client"},
    }
    shares = {
        name: registry.read_settings([{**private, "algorithm": name, **more}]).noise_sharing(7)
        for name, more in question.items()
    }
    assert shares == {
        "mdgan": NoiseSharing(8, None, 7, counts_alone=True),
        "moments": NoiseSharing(8, 5, 7),
        "fl-gan": NoiseSharing(8, None, 7),
    }
