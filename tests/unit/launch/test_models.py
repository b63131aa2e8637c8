"""Which models a run has, and whose defaults hold."""

from pathlib import Path
from typing import Any

import pytest

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.gan.build import build_model
from mdgan.launch.models import models_of, settings_with_defaults, tried_models
from tests.unit.data.bars import RECIPE, load_text

DIGITS = load("digits", None)
DEFAULTS = """
DEFAULTS = {
    "iterations": 9, "batch_size": 3, "augment": "diffaugment", "generator_lr": 0.5, "r1": 1.0,
    "generator_loss": "wasserstein", "discriminator_loss": "wasserstein", "gradient_penalty": 10.0,
}
"""


def settled(dataset: DatasetFile, *layers: dict[str, Any]) -> RunSettings:
    return settings_with_defaults(layers, dataset)


def refused(dataset: DatasetFile, **given: Any) -> str:
    with pytest.raises(BadInput) as why:
        tried_models(settled(dataset, given), dataset)
    assert "\n" not in str(why.value)
    return str(why.value)


def test_an_architecture_replaces_what_the_defaults_say_of_models(tmp_path: Path) -> None:
    bars = load_text(RECIPE + DEFAULTS, tmp_path)
    own = settled(bars)
    assert (
        own.training.policy("generator").learning_rate,
        own.training.regularizers.r1,
        own.training.discriminator_loss,
    ) == (0.5, 1.0, "wasserstein")
    found = settled(bars, {"architecture": "dcgan"}, {"beta2": 0.9})
    assert (
        found.training.iterations,
        found.training.batch_size,
        found.training.regularizers.augment,
    ) == (9, 3, "diffaugment")
    assert (
        found.training.policy("generator").learning_rate,
        found.training.policy("generator").betas[0],
        found.training.policy("generator").betas[1],
    ) == (2e-4, 0.5, 0.9)
    assert (
        found.training.discriminator_loss,
        found.training.regularizers.gradient_penalty,
        found.training.regularizers.r1,
    ) == ("bce", None, None)
    assert settled(bars, {"architecture": "file"}) == own


def test_defaults_may_name_an_architecture_and_then_win_over_its_own(tmp_path: Path) -> None:
    text = RECIPE + 'DEFAULTS = {"architecture": "dcgan", "width": 4, "beta1": 0.25}\n'
    bars = load_text(text, tmp_path)
    found = settled(bars)
    assert (
        found.models.architecture,
        found.models.width,
        found.training.policy("generator").betas[0],
    ) == ("dcgan", 4, 0.25)
    assert found.training.local_steps == 1
    own = settled(bars, {"architecture": "file"})
    assert (
        own.models.architecture,
        own.models.width,
        own.training.policy("generator").betas[0],
    ) == ("file", None, 0.25)


def test_stored_settings_are_read_back_as_they_were(tmp_path: Path) -> None:
    for defaults in ("", DEFAULTS, 'DEFAULTS = {"architecture": "dcgan", "width": 4}\n'):
        bars = load_text(RECIPE + defaults, tmp_path)
        for given in ({}, {"architecture": "dcgan", "width": 2, "beta1": 0.1}):
            found = settled(bars, given)
            assert settled(bars, found.as_json()) == found


def test_spectral_norm_is_put_on_an_architecture_too() -> None:
    settings = settled(DIGITS, {"architecture": "dcgan", "width": 2, "spectral_norm": True})
    tried_models(settings, DIGITS)
    names = build_model(models_of(settings, DIGITS).discriminator, 0).state_dict()
    assert "0.parametrizations.weight.original" in names


def test_what_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    bars = load_text(RECIPE, tmp_path)  # 4×4
    said = refused(bars, architecture="dcgan")
    assert "--architecture dcgan: " in said
    assert "8, 14, 16, 28, 32" in said
    assert "4×4" in said
    assert "did you mean 'dcgan'" in refused(DIGITS, architecture="dcgna")
    assert "--width 8: the models of " in refused(DIGITS, width=8)
    assert "--width 0: must be at least 1" in refused(DIGITS, architecture="dcgan", width=0)
    said = refused(DIGITS, architecture="sngan", width=2, spectral_norm=True)
    assert "--architecture sngan: its layers are normalised already; leave it out" in said
    assert "add NUM_CLASSES to it, or use dcgan or sngan" in refused(bars, architecture="acgan")
    bars = load_text(RECIPE + 'DEFAULTS = {"architecture": 3}\n', tmp_path)
    assert "--architecture 3: must be" in refused(bars)
