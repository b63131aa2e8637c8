"""The settings of a run: which ones each algorithm accepts, and which it refuses."""

from typing import Any

import pytest

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.swaps import swap_every
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.settings.declare import Settings
from mdgan.spelling import flag
from tests.unit.settings.refusals import WRONG_TYPES, misfits, refusal, refusal_of, refused, starts

BAD_VALUES: dict[str, list[Any]] = {
    "world_size": [1, -4, None],
    "iterations": [0, -1],
    "batch_size": [0],
    "local_steps": [0],
    "kappa": [0, -3, 5, "many", 2.0, True],
    "swap_interval": [-1, "auto"],
    "swap_epochs": [0, -1.0, float("inf"), float("nan")],
    "swap": ["ring"],
    "generator_loss": ["bce"],
    "discriminator_loss": ["non-saturating"],
    "partition": ["random"],
    "seed": [-1, 2**63],
    "deadline": ["soon", "0", "-1", "", "x", "3 x", "3X", "1e3", "nan", "10000000", "0x"],
    "quorum": [0.0, -0.5, float("nan"), 1.01],
    "strikes": [0],
    "checkpoint_interval": [-1],
    "checkpoint_keep": [0],
    "sample_interval": [-1],
    "eval_interval": [-1],
    "eval_samples": [1],
    "extractor": ["inception"],
    "inception_weights": ["weights.pth"],
    "log_interval": [0],
}
"""Of the right type, mostly; another test tries others."""


def test_the_defaults_are_valid() -> None:
    assert MDGANSettings().num_workers == 4
    assert registry.read_settings([]) == MDGANSettings()
    for name in registry.names():
        assert registry.read_settings([{"algorithm": name}]).algorithm == name


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_value_is_named_with_its_flag(name: str) -> None:
    for value in BAD_VALUES[name]:
        text = refusal(MDGANSettings, {name: value})
        assert text.startswith(starts(MDGANSettings, name, value))


@pytest.mark.parametrize("value", ["magic", 3, [], {}, True, 0.5])
def test_an_algorithm_that_there_is_not(value: Any) -> None:
    text = refusal_of({"algorithm": value})
    assert text.startswith(f"--algorithm {value}: must be one of {', '.join(registry.names())}")


@pytest.mark.parametrize("name", ["algorithm", "partition", "swap", "generator_loss"])
def test_a_value_with_a_line_break_is_still_refused_in_one_line(name: str) -> None:
    declared = registry.declared_settings()[name]
    assert declared.given("first second") in refusal_of({name: "first\nsecond"})


@pytest.mark.parametrize("kind", [MDGANSettings, FederatedSettings, StandaloneSettings])
@pytest.mark.parametrize("value", WRONG_TYPES, ids=str)
def test_every_setting_refuses_values_of_a_wrong_type(kind: type[Settings], value: Any) -> None:
    for name in misfits(kind, value):
        assert refusal(kind, {name: value}).startswith(starts(kind, name, value))


def test_a_number_too_large_for_a_float_is_refused() -> None:
    assert "--ema" in refusal(MDGANSettings, {"ema": 10**400})


@pytest.mark.parametrize(
    ("kappa", "world_size", "allowed"),
    [
        *((1, 2, True), (2, 2, True), (3, 2, False), (2, 3, True), (3, 3, False)),
        *((3, 4, True), (4, 4, False), (0, 9, False), (-1, 9, False), ("auto", 2, True)),
    ],
)
def test_kappa_may_be_up_to_the_number_of_workers_or_two(
    kappa: Any, world_size: int, allowed: bool
) -> None:
    if allowed:
        assert MDGANSettings(kappa=kappa, world_size=world_size).kappa == kappa
    else:
        text = refusal(MDGANSettings, {"kappa": kappa, "world_size": world_size})
        assert text.startswith(f"--kappa {kappa}:")


@pytest.mark.parametrize(
    ("algorithm", "kappa", "allowed"), [("mdgan", 3, True), ("mdgan", 4, False), ("fegan", 7, True)]
)
def test_with_participation_kappa_may_be_up_to_those_who_judge(
    algorithm: str, kappa: int, allowed: bool
) -> None:
    values = {"kappa": kappa, "world_size": 7, "participation": 0.5, "algorithm": algorithm}
    if allowed:
        assert registry.read_settings([values]).kappa == kappa
    else:
        assert "than 3 worker(s) at a time" in refusal_of(values)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (MDGANSettings, {"swap_interval": 5}, {"swap_epochs": 2.0}),
        (FederatedSettings, {"round_iterations": 5}, {"round_epochs": 2.0}),
    ],
)
def test_only_one_rhythm_can_be_given(
    kind: type[RunSettings], first: dict[str, Any], second: dict[str, Any]
) -> None:
    (one,), (other,) = first, second
    both = {**first, **second}
    for text in (refusal(kind, both), refused(lambda: kind.read({}, both))):
        assert text == f"{flag(one)!s} 5 and {flag(other)!s} 2.0: give one of them"


@pytest.mark.parametrize(
    ("flags", "file", "interval", "epochs"),
    [
        ({"swap_interval": 5}, {"swap_epochs": 2.0}, 5, None),
        ({"swap_epochs": 2.0}, {"swap_interval": 5}, None, 2.0),
        ({"swap_interval": 0}, {"swap_epochs": 2.0}, 0, None),
        ({"swap_interval": None}, {"swap_epochs": 2.0}, None, 2.0),
        ({"swap_interval": 7}, {"swap_interval": 5}, 7, None),
    ],
)
def test_a_flag_for_the_swap_rhythm_overrides_the_other_one_in_the_file(
    flags: dict[str, Any], file: dict[str, Any], interval: int | None, epochs: float | None
) -> None:
    settings = MDGANSettings.read(flags, file, {"swap_epochs": 9.0})
    assert settings.swaps.swap_interval == interval
    assert settings.swaps.swap_epochs == epochs


@pytest.mark.parametrize(
    ("values", "mean_shard_size", "iterations"),
    [
        ({}, 450.0, 45),
        ({"batch_size": 32}, 449.25, 14),
        ({"swap_epochs": 0.5}, 450.0, 22),
        ({"swap_epochs": 3.0, "batch_size": 100}, 450.0, 14),
        ({"swap_epochs": 1e-9}, 450.0, 1),
        ({"swap_interval": 17}, 450.0, 17),
        ({"swap_interval": 0}, 450.0, 0),
    ],
)
def test_swaps_come_every_m_e_over_b_iterations(
    values: dict[str, Any], mean_shard_size: float, iterations: int
) -> None:
    assert swap_every(MDGANSettings(**values), mean_shard_size) == iterations


@pytest.mark.parametrize(
    ("values", "mean_shard_size", "iterations"),
    [
        ({}, 450.0, 45),
        ({"batch_size": 32}, 449.25, 14),
        ({"round_epochs": 0.5}, 450.0, 22),
        ({"round_epochs": 1e-9}, 450.0, 1),
        ({"round_iterations": 17}, 450.0, 17),
    ],
)
def test_a_round_takes_m_e_over_b_iterations(
    values: dict[str, Any], mean_shard_size: float, iterations: int
) -> None:
    assert FederatedSettings(**values).round_length(mean_shard_size) == iterations


def test_what_the_algorithm_has_as_a_default_beats_that_of_the_dataset() -> None:
    settings = registry.read_settings(
        [{"algorithm": "fegan"}], {"batch_size": 7, "generator_optimizer": "beta1=0.25"}
    )
    assert isinstance(settings, FederatedSettings)
    assert (settings.training.batch_size, settings.training.policy("generator").betas[0]) == (
        50,
        0.25,
    )
    rounds = settings.rounds
    assert (rounds.sampling, rounds.weighting, rounds.round_iterations) == ("balanced", "kl", 30)
    given = registry.read_settings([{"algorithm": "fegan", "round_epochs": 2.0, "batch_size": 9}])
    assert isinstance(given, FederatedSettings)
    assert (given.rounds.round_epochs, given.rounds.round_iterations) == (2.0, None)
    assert given.training.batch_size == 9


def test_settings_of_a_machine_are_passed_over() -> None:
    layers = ({"threads": 2, "seed": 5}, {"threads": 3, "device": "cuda", "beta1": 0.0})
    assert registry.read_settings(layers) == MDGANSettings(
        seed=5, generator_optimizer="beta1=0", discriminator_optimizer="beta1=0"
    )


def test_falsy_flags_are_not_mistaken_for_absent_ones() -> None:
    settings = MDGANSettings.read({"ema": 0.0, "swap_interval": 0}, {"ema": 0.9})
    assert settings.training.ema == 0.0
    assert settings.swaps.swap_interval == 0
