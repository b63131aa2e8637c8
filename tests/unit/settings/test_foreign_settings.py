"""Settings of other algorithms."""

from typing import Any

import pytest

from mdgan.families import registry
from mdgan.families.standalone.settings import StandaloneSettings
from tests.unit.settings.refusals import refusal_of, refused

FOREIGN: list[tuple[str, str, Any, str]] = [
    ("fegan", "swap_interval", 3, "mdgan"),
    ("fegan", "swap_interval", 0, "mdgan"),
    ("fegan", "swap_epochs", 2.0, "mdgan"),
    ("fl-gan", "swap", "derangement", "mdgan"),
    ("paragan", "aggregation", "median", "mdgan or fl-gan"),
    ("fl-gan", "stale", 1, "mdgan"),
    ("mdgan", "round_iterations", 3, "fl-gan or fegan"),
    ("mdgan", "round_epochs", 2.0, "fl-gan or fegan"),
    ("mdgan", "sampling", "random", "fl-gan or fegan"),
    ("mdgan", "sampling", "balanced", "fl-gan or fegan"),
    ("mdgan", "weighting", "uniform", "fl-gan or fegan"),
    ("mdgan", "weighting", "kl", "fl-gan or fegan"),
    ("mdgan", "training_load", "measured", "fl-gan or fegan"),
    ("mdgan", "clusters", "kmeans:3", "fl-gan or fegan"),
    ("paragan", "wire", "images=int8", "mdgan or fl-gan"),
]


@pytest.mark.parametrize(("algorithm", "name", "value", "others"), FOREIGN)
def test_a_setting_of_another_algorithm_is_refused(
    algorithm: str, name: str, value: Any, others: str
) -> None:
    shown = str(registry.declared_settings()[name].given(value))
    assert refusal_of({"algorithm": algorithm, name: value}) == (
        f"{shown}: {algorithm} has no use for it; leave it out, or use --algorithm {others}"
    )


@pytest.mark.parametrize(("algorithm", "name", "value", "_"), FOREIGN)
def test_a_data_set_may_speak_of_other_algorithms(
    algorithm: str, name: str, value: Any, _: str
) -> None:
    given = [{"algorithm": algorithm}]
    assert registry.read_settings(given, {name: value}) == registry.read_settings(given)


@pytest.mark.parametrize("name", ["dp_epsilon", "dp_noise"])
def test_a_data_set_promises_no_privacy_that_the_algorithm_does_not_give(name: str) -> None:
    message = refused(lambda: registry.read_settings([{"algorithm": "paragan"}], {name: 1.0}))
    assert "paragan has no use for it" in message


def test_a_switch_of_another_algorithm_is_refused() -> None:
    assert refusal_of({"algorithm": "paragan", "vectorize": True}) == (
        "--vectorize: paragan has no use for it; leave it out, or use --algorithm mdgan or fl-gan"
    )


def test_what_changes_nothing_may_be_given_to_any_algorithm() -> None:
    neutral = {"swap": "pairs", "aggregation": "mean", "stale": 0, "vectorize": False}
    absent = {"swap_interval": None, "swap_epochs": None}
    values = {"algorithm": "fl-gan", **neutral, **absent}
    assert registry.read_settings([values]) == registry.read_settings([{"algorithm": "fl-gan"}])


def test_a_bad_value_of_another_algorithms_setting_is_named_as_such() -> None:
    text = refusal_of({"algorithm": "fl-gan", "aggregation": "vote"})
    assert text.startswith("--aggregation vote: not one of mean, median")


@pytest.mark.parametrize(("_", "name", "value", "__"), FOREIGN)
def test_the_baseline_passes_over_settings_of_others(
    _: str, name: str, value: Any, __: str
) -> None:
    values = {"algorithm": "standalone", "seed": 4, name: value}
    assert registry.read_settings([values]) == StandaloneSettings(seed=4)
