"""Which statements of hosts the server believes."""

from math import inf, nan
from typing import Any

import pytest

from mdgan.engine.stages.noise_parts import read_noise


def test_the_noise_of_each_worker_is_read() -> None:
    assert read_noise({"noise": {"1": 0.5, "12": 3}}) == {1: 0.5, 12: 3.0}
    assert read_noise({}) == {}


@pytest.mark.parametrize(
    "message",
    [5, "much", [1, 2], {"one": 1.0}, {"1": "x"}, {"1": [2]}, {"1": None}, {"1": {"2": 3}}],
    ids=str,
)
def test_what_makes_no_sense_is_no_noise(message: Any) -> None:
    assert read_noise({"noise": message}) == {}


@pytest.mark.parametrize("noise", [nan, inf, -1.0, 1e9])
def test_impossible_noise_counts_as_none(noise: float) -> None:
    assert read_noise({"noise": {"1": noise, "2": 1.0}}) == {1: 0.0, 2: 1.0}
