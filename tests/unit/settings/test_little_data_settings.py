"""Options for little data: off by default, and checked when a user sets them."""

import pytest

from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.regularizers.registry import RegularizerSettings
from tests.unit.settings.refusals import refusal

WASSERSTEIN = {"discriminator_loss": "wasserstein", "generator_loss": "wasserstein"}
OFF = {"ema": None, **dict.fromkeys(RegularizerSettings.names())}


@pytest.mark.parametrize("algorithm", registry.names())
def test_every_algorithm_has_them_and_none_is_on(algorithm: str) -> None:
    settings = registry.read_settings([{"algorithm": algorithm}]).as_json()
    assert {name: settings[name] for name in OFF} == OFF


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ema", -3, "--ema -3.0: must be above 0, or 0 for no average"),
        ("ema", float("nan"), "--ema nan: must be above 0"),
        ("ema", float("inf"), "--ema inf: must be above 0"),
        ("r1", -1, "--r1 -1.0: must be above 0; leave it out for no penalty"),
        ("r1", 0, "--r1 0.0: must be above 0; leave it out for no penalty"),
        ("r1", float("nan"), "--r1 nan: must be above 0"),
        ("gradient_penalty", -10, "--gradient-penalty -10.0: must be above 0"),
        ("augment", "ADA", "--augment ADA: must be diffaugment or ada"),
        ("augment", "diff-augment", "--augment diff-augment: must be diffaugment or ada; did you"),
        ("augment", "flip", "--augment flip: must be diffaugment or ada"),
        ("ada_target", 1, "--set ada_target=1.0: must be above -1 and below 1"),
        ("ada_target", 0.5, "--set ada_target=0.5: is for --augment ada; add that"),
        ("spectral_norm", "yes", '--spectral-norm "yes": must be true or false'),
    ],
)
def test_values_that_cannot_be(name: str, value: object, message: str) -> None:
    assert refusal(MDGANSettings, {name: value}).startswith(message)


@pytest.mark.parametrize("loss", ["bce", "hinge", "least-squares"])
def test_the_gradient_penalty_is_for_critics(loss: str) -> None:
    message = refusal(MDGANSettings, {"gradient_penalty": 10, "discriminator_loss": loss})
    assert message == (
        "--gradient-penalty 10: is for the Wasserstein losses; add --discriminator-loss "
        "wasserstein --generator-loss wasserstein, or use --r1"
    )
    settings = MDGANSettings.read({"gradient_penalty": 10, **WASSERSTEIN})
    assert settings.training.regularizers.gradient_penalty == 10
    assert MDGANSettings.read({"r1": 10, "discriminator_loss": loss}).training.regularizers.r1 == 10


@pytest.mark.parametrize("one", WASSERSTEIN)
def test_the_wasserstein_distance_needs_both_losses(one: str) -> None:
    message = refusal(MDGANSettings, {one: "wasserstein"})
    assert "wasserstein" in message
    assert message.endswith("no Wasserstein distance, which needs both; give wasserstein twice")


@pytest.mark.parametrize("loss", ["least-squares", "wasserstein"])
def test_ada_needs_logits_whose_sign_means_something(loss: str) -> None:
    losses = {"discriminator_loss": loss, "generator_loss": loss}
    message = refusal(MDGANSettings, {**losses, "augment": "ada"})
    assert message.startswith("--augment ada: asks how many real samples have a logit above 0")
    assert message.endswith("use one of bce, hinge, or --augment diffaugment")
    settings = MDGANSettings.read({**losses, "augment": "diffaugment"})
    assert settings.training.regularizers.augment == "diffaugment"
