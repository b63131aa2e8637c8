import json
from pathlib import Path
from typing import Any

import pytest
from mdgan.settings.config import as_settings, build_deployment, build_experiment, read_config_file
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment

from mdgan.errors import BadInput


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_config_file(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    assert text.startswith(f"--config {path}: ")
    return text


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "settings.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_settings_of_both_kinds_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, '{"batch_size": 32, "device": "cuda", "kappa": "auto", "out": null}')
    settings = read_config_file(path)
    assert settings == {"batch_size": 32, "device": "cuda", "kappa": "auto", "out": None}


def test_an_empty_object_is_fine(tmp_path: Path) -> None:
    assert read_config_file(written(tmp_path, "{}")) == {}


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("batchsize", "did you mean 'batch_size'?"),
        ("batch-size", "did you mean 'batch_size'?"),
        ("word_size", "did you mean 'world_size'?"),
        ("master_prot", "did you mean 'master_port'?"),
    ],
)
def test_an_unknown_key_is_named_and_the_nearest_one_suggested(
    tmp_path: Path, key: str, suggestion: str
) -> None:
    text = refusal(written(tmp_path, json.dumps({"seed": 1, key: 2})))
    assert repr(key) in text
    assert suggestion in text


def test_an_unknown_key_like_no_other_gets_no_suggestion(tmp_path: Path) -> None:
    text = refusal(written(tmp_path, '{"xyzzy\\nxyzzy": 1}'))
    assert "did you mean" not in text


@pytest.mark.parametrize(
    "content",
    ["", "{", "{'seed': 1}", '{"seed": }', "seed = 1", b"\xff\xfe\x00", '{"seed": 1} {}'],
)
def test_what_is_not_json_is_refused(tmp_path: Path, content: str | bytes) -> None:
    assert "not a JSON file" in refusal(written(tmp_path, content))


def test_endless_brackets_are_refused(tmp_path: Path) -> None:
    assert "not a JSON file" in refusal(written(tmp_path, "[" * 100_000))


@pytest.mark.parametrize("content", ["[]", "3", "null", '"seed"', '[{"seed": 1}]', "true"])
def test_json_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    assert "must hold one JSON object" in refusal(written(tmp_path, content))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot read it (No such file or directory)" in refusal(tmp_path / "none.json")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "cannot read it" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("settings", "flag", "value"),
    [
        ('{"batch_size": "10"}', "--batch-size", '"10"'),
        ('{"batch_size": true}', "--batch-size", "true"),
        ('{"batch_size": 10.0}', "--batch-size", "10.0"),
        ('{"batch_size": [10]}', "--batch-size", "[10]"),
        ('{"kappa": "2"}', "--kappa", '"2"'),
        ('{"generator_lr": "0.1"}', "--generator-lr", '"0.1"'),
        ('{"generator_lr": false}', "--generator-lr", "false"),
        ('{"generator_lr": NaN}', "--generator-lr", "nan"),
        ('{"dataset": 3}', "--dataset", "3"),
        ('{"threads": "2"}', "--threads", '"2"'),
        ('{"connect_timeout": {}}', "--connect-timeout", "{}"),
        ('{"deadline": 30}', "--deadline", "30"),
        ('{"patience": "long"}', "--patience", '"long"'),
        ('{"checkpoint_keep": "2"}', "--checkpoint-keep", '"2"'),
        ('{"insecure": 1}', "--insecure", "1"),
    ],
)
def test_a_wrong_type_in_a_file_is_named(
    tmp_path: Path, settings: str, flag: str, value: str
) -> None:
    layer = read_config_file(written(tmp_path, settings))
    with pytest.raises(BadInput) as caught:
        (build_experiment(layer), build_deployment(layer))
    assert str(caught.value).startswith(f"{flag} {value}: must be ")
    assert "\n" not in str(caught.value)


def test_null_means_not_given(tmp_path: Path) -> None:
    layer = read_config_file(written(tmp_path, '{"batch_size": null, "threads": null}'))
    assert build_experiment(layer, {"batch_size": 3}).batch_size == 3
    assert build_deployment(layer).threads == "auto"


def test_a_flag_beats_the_file_and_the_file_the_dataset(tmp_path: Path) -> None:
    file = read_config_file(written(tmp_path, '{"batch_size": 2, "seed": 2}'))
    dataset = {"batch_size": 3, "seed": 3, "local_steps": 3}
    experiment = build_experiment({"batch_size": 1}, file, dataset)
    found = (experiment.batch_size, experiment.seed, experiment.local_steps)
    assert (*found, experiment.iterations) == (1, 2, 3, Experiment().iterations)


@pytest.mark.parametrize(
    ("experiment", "deployment"),
    [
        ({}, {}),
        ({"swap_interval": 0, "kappa": 3, "seed": 2**63 - 1}, {"transport": "memory"}),
        (
            {"swap_epochs": 0.1, "partition": "fegan:3,9", "generator_lr": 1e-7},
            {"threads": 2, "ranks": "0..4", "master_port": 0, "data_dir": "data/{rank}/ü"},
        ),
        (
            {"aggregation": "trimmed-mean:1", "world_size": 9},
            {"deadline": "1.5x", "quorum": 0.75, "strikes": 1, "liveness_timeout": 4.5},
        ),
        (
            {},
            {
                "master_addr": "10.0.0.1, 10.0.0.2",
                "join_token": "~/token",
                "insecure": True,
                "patience": 0.0,
                "checkpoint_interval": 0,
                "checkpoint_keep": 9,
                "checkpoint_to_server": True,
            },
        ),
    ],
)
def test_what_a_run_writes_can_be_read_back(
    tmp_path: Path, experiment: dict[str, Any], deployment: dict[str, Any]
) -> None:
    ran, where = Experiment(**experiment), Deployment(out="runs/a", **deployment)
    layer = read_config_file(written(tmp_path, json.dumps(as_settings(ran, where))))
    assert "out" not in layer
    assert build_experiment(layer) == ran
    assert build_deployment(layer) == Deployment(**deployment)


def test_what_a_run_wrote_beats_the_defaults_of_the_dataset(tmp_path: Path) -> None:
    ran = Experiment(swap_epochs=2.0)
    layer = read_config_file(written(tmp_path, json.dumps(as_settings(ran, Deployment()))))
    assert build_experiment(layer, {"swap_interval": 3, "batch_size": 99}) == ran
