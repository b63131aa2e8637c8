"""Each network's own optimizer; the old flags stand for both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS, OptimizerSettings, Policy
from mdgan.gan.schedules import Schedule
from tests.unit.settings.refusals import refusal, refusal_of

NETWORKS = ("generator", "discriminator")


@pytest.mark.parametrize("network", NETWORKS)
def test_the_old_flags_stand_for_both(network: str) -> None:
    settings = MDGANSettings(beta1=0.1, beta2=0.2, iterations=7)
    expected = Policy("adam", 2e-4, (0.1, 0.2), schedule=Schedule("constant", 0, 7))
    assert settings.training.policy(network) == expected


def test_each_network_has_its_own() -> None:
    settings = MDGANSettings.read(
        {
            **{"generator_optimizer": "lookahead:adabelief", "generator_beta1": 0.9},
            **{"generator_epsilon": 1e-12, "generator_schedule": "cosine", "generator_lr": 1e-3},
            **{"discriminator_optimizer": "sgd", "discriminator_weight_decay": 0.1},
            **{"discriminator_clip_norm": 2, "discriminator_warmup_iterations": 4},
            **{"beta1": 0.3, "iterations": 50},
        }
    )
    assert settings.training.policy("generator") == Policy(
        "lookahead:adabelief", 1e-3, (0.9, 0.999), 1e-12, schedule=Schedule("cosine", 0, 50)
    )
    assert settings.training.policy("discriminator") == Policy(
        "sgd", 2e-4, (0.3, 0.999), None, 0.1, 2.0, Schedule("constant", 4, 50)
    )


@pytest.mark.parametrize("algorithm", registry.names())
def test_every_algorithm_has_them_and_none_is_set(algorithm: str) -> None:
    """Runs of older versions lack these settings; an unset one must look the same in reports."""
    settings = registry.read_settings([{"algorithm": algorithm}])
    new = OptimizerSettings.names() - {"generator_lr", "discriminator_lr", "beta1", "beta2"}
    assert len(new) == 16
    assert {settings.as_json()[name] for name in new} == {None}


@pytest.mark.parametrize("name", [*OPTIMIZERS, *(LOOKAHEAD + name for name in OPTIMIZERS)])
@pytest.mark.parametrize("network", NETWORKS)
def test_an_optimizer_by_its_name(network: str, name: str) -> None:
    settings = MDGANSettings.read({f"{network}_optimizer": name})
    assert settings.training.policy(network).optimizer == name
    assert settings.as_json()[f"{network}_optimizer"] == name


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("Adam", "adam"),
        ("adamw", "adam"),
        ("radm", "radam"),
        ("ada-belief", "adabelief"),
        ("larz", "lars"),
        ("lookahead:lam", "lookahead:lamb"),
        ("lookahead:lookahead:adam", "lookahead:adam"),
    ],
)
def test_a_name_that_is_no_optimizer(given: str, nearest: str) -> None:
    told = refusal_of({"generator_optimizer": given})
    assert told.startswith(f"--generator-optimizer {given}: must be one of adam, ")
    assert told.endswith(f"did you mean {nearest!r}?")


@given(st.text(max_size=30))
def test_no_other_text_is_an_optimizer(text: str) -> None:
    if text.removeprefix(LOOKAHEAD) not in OPTIMIZERS:
        assert "--discriminator-optimizer" in refusal_of({"discriminator_optimizer": text})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("epsilon", 0, "0.0: must be above 0"),
        ("epsilon", float("nan"), "nan: must be above 0"),
        ("weight_decay", -0.1, "-0.1: must be 0 or more"),
        ("clip_norm", 0, "0.0: must be above 0; leave it out"),
        ("beta1", 1, "1.0: must be in [0, 1)"),
        ("warmup_iterations", -1, "-1: must be at least 0"),
        ("schedule", "step", "step: must be one of constant, linear, cosine"),
    ],
)
@pytest.mark.parametrize("network", NETWORKS)
def test_values_that_cannot_be(network: str, name: str, value: object, told: str) -> None:
    flag = f"--{network}-{name}".replace("_", "-")
    assert refusal(MDGANSettings, {f"{network}_{name}": value}).startswith(f"{flag} {told}")


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "lookahead:sgd"])
@pytest.mark.parametrize("name", ["epsilon", "beta2"])
def test_a_number_that_an_optimizer_has_no_use_for(optimizer: str, name: str) -> None:
    given = {"generator_optimizer": optimizer, f"generator_{name}": 0.5}
    told = refusal(MDGANSettings, given)
    assert told.startswith(f"--generator-{name} 0.5: {optimizer} has no use for it; leave it out")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("beta1", ["beta1", "own"])
def test_adabelief_without_a_mean_of_gradients(network: str, beta1: str) -> None:
    name = f"{network}_beta1" if beta1 == "own" else beta1
    given = {f"{network}_optimizer": "lookahead:adabelief", name: 0}
    told = refusal(MDGANSettings, given)
    assert told.startswith(f"--{network}-optimizer lookahead:adabelief: divides by")
    assert f"add --{network}-beta1 0.5" in told
    MDGANSettings.read({**given, f"{network}_beta1": 0.5})  # is taken
