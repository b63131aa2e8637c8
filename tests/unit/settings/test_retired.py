"""Former names of settings, and the messages about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.settings.declare import Settings
from mdgan.settings.retired import GONE, RENAMED, answer, modern
from mdgan.spelling import spelled

NEW = {
    "generator_optimizer": "adabelief:lr=0.001,beta1=0.3,beta2=0.9,epsilon=1e-07,schedule=cosine,"
    "warmup=5",
    "discriminator_optimizer": "radam:beta1=0.5,beta2=0.9,weight_decay=0.01,clip_norm=1.0",
    "wire": "images=bf16,feedback=topk:0.1",
    "dp_disclose": "classes",
}
OLD = {
    **{"generator_optimizer": "adabelief", "generator_lr": 1e-3, "generator_beta1": 0.3},
    **{"generator_epsilon": 1e-7, "generator_schedule": "cosine", "generator_warmup_iterations": 5},
    **{"discriminator_optimizer": "radam", "discriminator_weight_decay": 0.01},
    **{"discriminator_clip_norm": 1.0, "discriminator_beta1": None, "beta1": 0.5, "beta2": 0.9},
    **{"wire_images": "bf16", "wire_feedback": "topk:0.1", "wire_models": "fp32"},
    **{"dp_tell": "classes"},
}


def test_old_names_mean_what_they_meant() -> None:
    private = {"dp_epsilon": 1.0, "dp_delta": 1e-3}
    assert registry.read_settings([{**private, **OLD}]) == MDGANSettings(**private, **NEW)
    assert modern(NEW, "a file") == NEW


def test_an_old_name_for_both_networks_gives_way_to_that_of_one() -> None:
    settings = registry.read_settings([{"beta1": 0.1, "discriminator_beta1": 0.2}]).training
    assert [settings.policy(n).betas[0] for n in ("generator", "discriminator")] == [0.1, 0.2]


def test_an_optimizer_without_beta2_passes_over_that_of_both() -> None:
    settings = registry.read_settings([{"generator_optimizer": "sgd", "beta2": 0.9}]).training
    assert str(settings.generator_optimizer) == "sgd:lr=0.0002,beta1=0.5"
    assert settings.policy("discriminator").betas[1] == 0.9


def test_old_and_new_names_stand_beside_each_other() -> None:
    values = {"generator_lr": 0.5, "generator_optimizer": "sgd:beta1=0"}
    settings = registry.read_settings([values]).training.generator_optimizer
    assert str(settings) == "sgd:lr=0.5,beta1=0"


def test_tensorboard_is_a_tracker_now() -> None:
    assert modern({"tensorboard": True, "tracker": "wandb"}, "") == {"tracker": "tensorboard,wandb"}
    assert modern({"tensorboard": True}, "") == {"tracker": "tensorboard"}
    assert modern({"tensorboard": False, "tracker": None}, "") == {"tracker": None}


@pytest.mark.parametrize("name", GONE)
def test_what_there_is_no_more_is_passed_over_or_refused(name: str) -> None:
    assert modern({name: GONE[name].default, "seed": 1}, "run") == {"seed": 1}
    assert modern({name: None, "seed": 1}, "run") == {"seed": 1}
    if name != "tensorboard":
        with pytest.raises(BadInput, match=f"^run: '{name}' is no setting any more; "):
            modern({name: "other"}, "run")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("generator_lr", "1e-3", "--generator-lr: write --generator-optimizer lr=1e-3"),
        (
            *("discriminator_warmup_iterations", 3),
            "--discriminator-warmup-iterations: write --discriminator-optimizer warmup=3",
        ),
        ("wire_feedback", "topk:0.1", "--wire-feedback: write --wire feedback=topk:0.1"),
        ("dp_tell", "classes,losses", "--dp-tell: write --dp-disclose classes,losses"),
        ("dp_tell", None, "--dp-tell: write --dp-disclose VALUE"),
        ("relay", "never", "--relay: is no setting any more; "),
        (
            *("beta2", 0.9),
            "--beta2: is now a key of each optimizer; write --generator-optimizer beta2=0.9 "
            "--discriminator-optimizer beta2=0.9",
        ),
    ],
)
def test_an_old_flag_is_answered_with_the_new_one(name: str, value: object, message: str) -> None:
    assert spelled(answer(name, value) or "").startswith(message)


def test_a_ring_had_the_bits_of_the_star_that_remains() -> None:
    settings = registry.read_settings([{"algorithm": "paragan", "all_reduce": "ring"}])
    assert settings == registry.read_settings([{"algorithm": "paragan", "all_reduce": "star"}])
    with pytest.raises(BadInput, match="--all-reduce fast: must be one of shared, star, direct"):
        registry.read_settings([{"algorithm": "paragan", "all_reduce": "fast"}])


def test_no_old_name_is_a_setting() -> None:
    known = set(registry.declared_settings())
    assert not known & {*RENAMED, *GONE, "beta1", "beta2"}
    assert {new for new, _ in RENAMED.values()} <= known
    assert answer("batch_size", 3) is None


WRITTEN_BY_0_5_0: dict[str, Any] = {
    **{"algorithm": "mdgan", "dataset": "digits", "world_size": 5, "iterations": 3000},
    **{"batch_size": 10, "kappa": "auto", "participation": 1.0, "round_iterations": None},
    **{"round_epochs": None, "sampling": None, "weighting": None, "training_load": "equal"},
    **{"clusters": "none", "local_steps": 1, "swap_interval": None, "swap_epochs": None},
    **{"swap": "pairs", "aggregation": "mean", "generator_loss": "non-saturating"},
    **{"discriminator_loss": "bce", "generator_lr": 0.0002, "discriminator_lr": 0.0002},
    **{"beta1": 0.5, "beta2": 0.999, "partition": "iid", "precision": "fp32"},
    **{"channels_last": False, "compile": False, "stale": 0, "wire_images": "fp32"},
    **{"wire_feedback": "fp32", "wire_models": "fp32", "seed": 0, "datasets_dir": None},
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
SINCE_0_7_0 = {
    **{"relay": "auto", "data_buffer": "auto", "slot_rounds": 3},
    **{"time_window": None, "dp_repeatable": False, "dp_tell": None, "ada_images": None},
    **{"generator_optimizer": None, "discriminator_optimizer": None, "generator_epsilon": None},
}
"""Some of what 0.7.0 wrote besides."""
CHOSEN = {"swap_epochs": 2.0, "aggregation": "f2a:0.5", "deadline": "3x", "participation": 0.5}
FEGAN = {
    **{"algorithm": "fegan", "participation": 0.025, "round_iterations": 30},
    **{"batch_size": 50, "sampling": "balanced", "weighting": "kl"},
}
FL_GAN = {
    **{"algorithm": "fl-gan", "round_epochs": 1.0, "sampling": "random"},
    **{"weighting": "uniform", "training_load": "weak:0.5,speed"},
}


@pytest.mark.parametrize("version", [{}, SINCE_0_7_0], ids=["0.5.0", "0.7.0"])
@pytest.mark.parametrize("values", [{}, CHOSEN, FL_GAN, FEGAN, {"algorithm": "standalone"}])
def test_what_earlier_versions_wrote_is_read(
    tmp_path: Path, version: dict[str, Any], values: dict[str, Any]
) -> None:
    from mdgan.launch.given import known_settings
    from mdgan.launch.settings import LaunchSettings
    from mdgan.settings.config_file import read_config_file

    path = tmp_path / "config.json"
    path.write_text(json.dumps({**WRITTEN_BY_0_5_0, **version, **values}))
    layer = read_config_file(path, known_settings()).settings
    meant: Settings = registry.read_settings([values])
    assert registry.read_settings([layer]) == meant
    defaults = {"batch_size": 99, "generator_optimizer": "beta1=0.9"}
    assert registry.read_settings([layer], defaults) == meant
    assert LaunchSettings.read(layer) == LaunchSettings()
