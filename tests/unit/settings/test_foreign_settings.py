"""Settings of other algorithms, and files of settings that hold them."""

import json
from pathlib import Path
from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.gan.optimizer_settings import OptimizerSettings
from mdgan.gan.regularizer_settings import RegularizerSettings
from mdgan.gan.settings import TrainingSettings
from mdgan.launch.resolve import known_settings
from mdgan.launch.settings import LaunchSettings
from mdgan.models.settings import ModelSettings
from mdgan.privacy.settings import PrivacySettings
from mdgan.settings.config_file import read_config_file
from mdgan.settings.declare import flag
from tests.unit.settings.refusals import refusal_of, refused

FOREIGN: list[tuple[str, str, Any, str]] = [
    ("fegan", "swap_interval", 3, "mdgan"),
    ("fegan", "swap_interval", 0, "mdgan"),
    ("fegan", "swap_epochs", 2.0, "mdgan"),
    ("fl-gan", "swap", "derangement", "mdgan"),
    ("paragan", "aggregation", "median", "mdgan or fl-gan"),
    ("fl-gan", "stale", 1, "mdgan"),
    ("fegan", "wire_images", "bf16", "mdgan"),
    ("fegan", "wire_feedback", "int8", "mdgan"),
    ("mdgan", "round_iterations", 3, "fl-gan or fegan"),
    ("mdgan", "round_epochs", 2.0, "fl-gan or fegan"),
    ("mdgan", "sampling", "random", "fl-gan or fegan"),
    ("mdgan", "sampling", "balanced", "fl-gan or fegan"),
    ("mdgan", "weighting", "uniform", "fl-gan or fegan"),
    ("mdgan", "weighting", "kl", "fl-gan or fegan"),
    ("mdgan", "training_load", "measured", "fl-gan or fegan"),
    ("mdgan", "clusters", "kmeans:3", "fl-gan or fegan"),
    ("mdgan", "wire_models", "int8", "fl-gan or fegan"),
]


@pytest.mark.parametrize(("algorithm", "name", "value", "others"), FOREIGN)
def test_a_setting_of_another_algorithm_is_refused(
    algorithm: str, name: str, value: Any, others: str
) -> None:
    assert refusal_of({"algorithm": algorithm, name: value}) == (
        f"{flag(name)} {value}: {algorithm} has no use for it; leave it out, or use --algorithm "
        f"{others}"
    )
    dataset = refused(lambda: registry.read_settings([{"algorithm": algorithm}], {name: value}))
    assert "has no use for it" in dataset


def test_a_switch_of_another_algorithm_is_refused() -> None:
    assert refusal_of({"algorithm": "paragan", "vectorize": True}) == (
        "--vectorize: paragan has no use for it; leave it out, or use --algorithm mdgan or fl-gan"
    )


def test_what_changes_nothing_may_be_given_to_any_algorithm() -> None:
    neutral = {"swap": "pairs", "aggregation": "mean", "stale": 0, "vectorize": False}
    absent = {"swap_interval": None, "swap_epochs": None}
    given = {"algorithm": "fl-gan", **neutral, **absent}
    assert registry.read_settings([given]) == registry.read_settings([{"algorithm": "fl-gan"}])


def test_a_bad_value_of_another_algorithms_setting_is_named_as_such() -> None:
    text = refusal_of({"algorithm": "fl-gan", "aggregation": "vote"})
    assert text.startswith("--aggregation vote: not one of mean, median")


@pytest.mark.parametrize(("_", "name", "value", "__"), FOREIGN)
def test_the_baseline_passes_over_settings_of_others(
    _: str, name: str, value: Any, __: str
) -> None:
    given = {"algorithm": "standalone", "seed": 4, name: value}
    assert registry.read_settings([given]) == StandaloneSettings(seed=4)


WRITTEN_BY_0_5_0: dict[str, Any] = {
    **{"algorithm": "mdgan", "dataset": "digits", "world_size": 5, "iterations": 3000},
    **{"batch_size": 10, "kappa": "auto", "participation": 1.0, "round_iterations": None},
    **{"round_epochs": None, "sampling": None, "weighting": None, "training_load": "equal"},
    **{"clusters": "none", "local_steps": 1, "swap_interval": None, "swap_epochs": None},
    **{"swap": "pairs", "aggregation": "mean", "generator_loss": "non-saturating"},
    **{"discriminator_loss": "bce", "generator_lr": 0.0002, "discriminator_lr": 0.0002},
    **{"beta1": 0.5, "beta2": 0.999, "partition": "iid", "precision": "fp32"},
    **{"channels_last": False, "compile": False, "stale": 0, "wire": "images=fp32"},
    **{"wire": "feedback=fp32,models=fp32", "seed": 0, "datasets_dir": None},
    **{"data_dir": None, "workers_per_host": None, "vectorize": False, "tune": False},
    **{"transport": "tcp", "device": "cpu", "ranks": None, "master_addr": "127.0.0.1"},
    **{"master_port": None, "network_interface": None, "threads": "auto"},
    **{"eval_interval": 500, "eval_samples": 10000, "extractor": "classifier"},
    **{"inception_weights": None, "held_out": None, "tensorboard": False},
    **{"sample_interval": 500, "log_interval": 50, "connect_timeout": 300.0},
    **{"join_token": None, "insecure": False, "deadline": None, "on_deadline": "complete"},
    **{"quorum": 0.5, "liveness_timeout": 30.0, "patience": 300.0, "strikes": 3},
    **{"checkpoint_interval": 500, "checkpoint_keep": 2, "checkpoint_to_server": False},
}
"""The `config.json` of a run with all defaults, as version 0.5.0 left it."""

CHOSEN = {"swap_epochs": 2.0, "aggregation": "f2a:0.5", "deadline": "3x", "participation": 0.5}
RUNS: list[tuple[dict[str, Any], object]] = [
    ({}, MDGANSettings()),
    (CHOSEN, MDGANSettings.read(CHOSEN)),
    (
        {
            **{"algorithm": "fl-gan", "round_epochs": 1.0, "sampling": "random"},
            **{"weighting": "uniform", "training_load": "weak:0.5,speed"},
        },
        FederatedSettings.read({"round_epochs": 1.0, "training_load": "weak:0.5,speed"}),
    ),
    (
        {
            **{"algorithm": "fegan", "participation": 0.025, "round_iterations": 30},
            **{"batch_size": 50, "sampling": "balanced", "weighting": "kl"},
        },
        registry.read_settings([{"algorithm": "fegan"}]),
    ),
    ({"algorithm": "standalone"}, StandaloneSettings()),
    (
        {"algorithm": "standalone", "swap": "derangement", "swap_interval": 3, "kappa": 2},
        StandaloneSettings(kappa=2),
    ),
]


LATER = {
    *(
        "init_from",
        "log_file",
        "cores",
        "strict_data",
        "data_threads",
        "data_buffer",
        "exact_layers",
        "merge_halves",
        "profile",
        "tracker",
        "ema",
        "listen",
        "relay",
    ),
    *("credentials", "ca", "certificate", "key", "revoked"),
    *ModelSettings.names(),
    *(DataParallelSettings.names() - MDGANSettings.names()),
    *("updates", "class_weight", "label_prior"),
    *("clients", "client_state", "slots", "slot_rounds", "placement", "time_window"),
    *("max_world_size", "swap_state", "secure_aggregation", "require", "shut_out_free_riders"),
    *("norm", "dp_unit"),
    *(PrivacySettings.names() - TrainingSettings.names()),
    *RegularizerSettings.names(),
    *(OptimizerSettings.names() - {"generator_lr", "discriminator_lr", "beta1", "beta2"}),
}
"""Settings that came after version 0.5.0."""
GONE = {"join_token"}
"""Settings that version 0.5.0 had, and this one does not have."""


def test_0_5_0_wrote_every_setting_that_it_had_but_the_folder_of_the_run() -> None:
    assert WRITTEN_BY_0_5_0.keys() - GONE == known_settings() - {"out"} - LATER


def test_a_token_of_0_5_0_is_answered_with_what_replaced_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**WRITTEN_BY_0_5_0, "join_token": "run.token"}))
    with pytest.raises(BadInput, match="'join_token' is no setting any more; give credentials"):
        read_config_file(path, known_settings())


@pytest.mark.parametrize(("given", "meant"), RUNS, ids=range(len(RUNS)))
def test_what_0_5_0_wrote_is_read(tmp_path: Path, given: dict[str, Any], meant: object) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**WRITTEN_BY_0_5_0, **given}))
    layer = read_config_file(path, known_settings())
    assert registry.read_settings([layer]) == meant
    assert registry.read_settings([layer], {"batch_size": 99, "beta1": 0.9}) == meant
    assert LaunchSettings.read(layer) == LaunchSettings()
