"""Each network's own optimizer, as one value of name and keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS, Policy, RateSchedule
from tests.unit.settings.refusals import refusal, refusal_of

NETWORKS = ("generator", "discriminator")


def test_each_network_has_its_own() -> None:
    training = MDGANSettings(
        generator_optimizer="lookahead:adabelief:lr=1e-3,beta1=.9,epsilon=1e-12,schedule=cosine",
        discriminator_optimizer="sgd:weight_decay=0.1,clip_norm=2,warmup=4,beta1=0.3",
        iterations=50,
    ).training
    assert training.policy("generator") == Policy(
        "lookahead:adabelief", 1e-3, (0.9, 0.999), 1e-12, schedule=RateSchedule("cosine", 0, 50)
    )
    assert training.policy("discriminator") == Policy(
        "sgd", 2e-4, (0.3, 0.999), None, 0.1, 2.0, RateSchedule("constant", 4, 50)
    )


@pytest.mark.parametrize("algorithm", registry.names())
@pytest.mark.parametrize("network", NETWORKS)
def test_every_algorithm_has_adam_unless_another_is_given(algorithm: str, network: str) -> None:
    if f"{network}_optimizer" in registry.algorithm(algorithm).defaults:
        pytest.skip("the algorithm has another one")
    settings = registry.read_settings([{"algorithm": algorithm, "iterations": 9}])
    assert settings.training.policy(network) == Policy(schedule=RateSchedule(num_iterations=9))
    assert settings.as_json()[f"{network}_optimizer"] == "adam:lr=0.0002,beta1=0.5,beta2=0.999"


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", [*OPTIMIZERS, *(LOOKAHEAD + name for name in OPTIMIZERS)])
def test_all_names_are_taken_and_written(network: str, name: str) -> None:
    settings = MDGANSettings.read({f"{network}_optimizer": name})
    assert settings.training.policy(network).optimizer == name
    again = MDGANSettings.read(settings.as_json())
    assert again == settings


def test_each_key_is_a_choice_of_its_own() -> None:
    layers = [{"generator_optimizer": "sgd:lr=1"}, {"generator_optimizer": "adam:lr=2,beta1=0.25"}]
    settings = registry.read_settings(layers, {"generator_optimizer": "clip_norm=3"}).training
    assert str(settings.generator_optimizer) == "sgd:lr=1,beta1=0.25,clip_norm=3"


@pytest.mark.parametrize(
    ("values", "nearest"),
    [
        ("Adam", "adam"),
        ("adamw", "adam"),
        ("larz", "lars"),
        ("lookahead:lam", "lookahead:lamb"),
        ("lookahead:lookahead:adam", "lookahead:adam"),
    ],
)
def test_a_name_that_is_no_optimizer(values: str, nearest: str) -> None:
    said = refusal_of({"generator_optimizer": values})
    assert said.startswith(f"--generator-optimizer {values}: must be one of adam, ")
    assert said.endswith(f"did you mean {nearest!r}?")


# A flag within the text would read like one that the message spells wrong.
@given(st.text(max_size=30).filter(lambda text: "--" not in text))
def test_no_other_text_is_an_optimizer(text: str) -> None:
    if text.removeprefix(LOOKAHEAD) not in ("", *OPTIMIZERS):
        assert "--discriminator-optimizer" in refusal_of({"discriminator_optimizer": text})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("lr=0", "lr=0 must be above 0"),
        ("lr=inf", "lr=inf must be above 0"),
        ("lr=fast", "lr=fast is no number"),
        ("lr", "must be one of adam"),
        ("epsilon=0", "epsilon=0 must be above 0"),
        ("epsilon=nan", "epsilon=nan must be above 0"),
        ("weight_decay=-0.1", "weight_decay=-0.1 must be 0 or more"),
        ("clip_norm=0", "clip_norm=0 must be above 0; leave it out"),
        ("beta1=1", "beta1=1 must be in [0, 1)"),
        ("beta2=-1", "beta2=-1 must be in [0, 1)"),
        ("warmup=-1", "warmup=-1 must be at least 0"),
        ("warmup=1.5", "warmup=1.5 is no number"),
        ("schedule=step", "schedule=step must be one of constant, linear, cosine"),
        ("adam:momentum=1", "momentum: must be one of lr, beta1"),
        ("sgd:epsilon=0.5", "sgd has no use for epsilon; leave it out"),
        ("lookahead:lars:beta2=0.5", "lookahead:lars has no use for beta2; leave it out"),
        ("lookahead:adabelief:beta1=0", "divides by how far gradients are from their mean"),
    ],
)
@pytest.mark.parametrize("network", NETWORKS)
def test_values_that_cannot_be(network: str, values: str, message: str) -> None:
    text = refusal(MDGANSettings, {f"{network}_optimizer": values})
    assert text.startswith(f"--{network}-optimizer {values}: {message}")


def test_defaults_for_another_optimizer_do_not_count() -> None:
    """An architecture's β2 is for its Adam; who gives one to LARS is told that it has no use."""
    defaults = {"generator_optimizer": "adam:beta1=0,beta2=0.9,epsilon=1e-6"}
    read = registry.read_settings
    changes = {"algorithm": "mdgan", "generator_optimizer": "lars:lr=5"}
    form = read((changes,), defaults).training.generator_optimizer
    assert dict(form.values).keys() & {"beta2", "epsilon"} == set()
    assert dict(form.values)["beta1"] == 0
    with pytest.raises(BadInput, match="lars has no use for beta2; leave it out"):
        read(({**changes, "generator_optimizer": "lars:beta2=0.9"},), defaults)
