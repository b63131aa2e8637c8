"""What helps where data are few: off by default, and checked when it is asked for."""

import pytest

from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from tests.unit.settings.refusals import refusal

OFF = {"ema": None}


@pytest.mark.parametrize("algorithm", registry.names())
def test_every_algorithm_has_them_and_none_is_on(algorithm: str) -> None:
    settings = registry.read_settings([{"algorithm": algorithm}]).as_json()
    assert {name: settings[name] for name in OFF} == OFF


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ema", 0, "--ema 0.0: must be above 0; leave it out for no average"),
        ("ema", -3, "--ema -3.0: must be above 0"),
        ("ema", float("nan"), "--ema nan: must be above 0"),
        ("ema", float("inf"), "--ema inf: must be above 0"),
    ],
)
def test_values_that_cannot_be(name: str, value: object, told: str) -> None:
    assert refusal(MDGANSettings, {name: value}).startswith(told)
