import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.launch.given import known_settings
from mdgan.launch.settings import LaunchSettings
from mdgan.settings import config_file
from tests.unit.settings.refusals import refused


def read_config_file(path: Path) -> dict[str, Any]:
    return config_file.read_config_file(path, known_settings()).settings


def refusal(path: Path) -> str:
    text = refused(lambda: read_config_file(path))
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
    assert read_config_file(written(tmp_path, "{}")) == {}


def test_the_scale_of_a_paper_replaces_settings_and_faults(tmp_path: Path) -> None:
    scaled = {"iterations": 9, "partition": "fegan:1,2", "faults": "server:kill@wait:7"}
    content = {"iterations": 3, "seed": 4, "faults": "server:kill@wait:2", "paper_scale": scaled}
    path = written(tmp_path, json.dumps(content))
    here = config_file.read_config_file(path, known_settings())
    there = config_file.read_config_file(path, known_settings(), paper_scale=True)
    assert here == ({"iterations": 3, "seed": 4}, "server:kill@wait:2")
    assert there.settings == {"iterations": 9, "seed": 4, "partition": "fegan:1,2"}
    assert there.faults == "server:kill@wait:7"


@pytest.mark.parametrize("paper_scale", [False, True])
@pytest.mark.parametrize(
    ("scaled", "said"),
    [
        (3, "paper_scale must be a JSON object of settings"),
        ({"iteration": 3}, "paper_scale: unknown key 'iteration'; did you mean 'iterations'?"),
        ({"iterations": 0}, "paper_scale: --iterations 0: must be at least 1"),
        ({"partition": 5}, "paper_scale: --partition 5: must be text"),
        *(
            ({"faults": faults}, 'paper_scale: "faults" must be text as MDGAN_FAULTS has it')
            for faults in (1, "\0", "\ud800", "\n", "²")
        ),
        ({"paper_scale": {}}, "paper_scale: unknown key 'paper_scale'"),
        ({"join_token": "x"}, "paper_scale: 'join_token' is no setting any more"),
    ],
)
def test_what_cannot_be_scaled_is_refused_by_its_key(
    tmp_path: Path, scaled: object, said: str, *, paper_scale: bool
) -> None:
    path = written(tmp_path, json.dumps({"paper_scale": scaled}))
    read = partial(config_file.read_config_file, path, known_settings(), paper_scale=paper_scale)
    text = refused(read)
    assert text.startswith(f"--config {path}: {said}")
    assert len(text.splitlines()) == 1


def test_a_file_without_another_scale_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, "{}")
    read = partial(config_file.read_config_file, path, known_settings(), paper_scale=True)
    assert refused(read) == f'--paper-scale: {path} has no object "paper_scale" of settings'


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        *((key, "did you mean 'batch_size'?") for key in ("batchsize", "batch-size")),
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


def test_what_is_no_json_object_is_refused(tmp_path: Path) -> None:
    no_json: list[str | bytes] = [
        "",
        "{",
        "{'seed': 1}",
        '{"seed": }',
        "seed = 1",
        b"\xff\xfe\x00",
        '{"seed": 1} {}',
    ]
    for content in (*no_json, "[" * 100_000):
        assert "not a JSON file" in refusal(written(tmp_path, content))
    for content in ("[]", "3", "null", '"seed"', '[{"seed": 1}]', "true"):
        assert "must hold one JSON object" in refusal(written(tmp_path, content))


@pytest.mark.parametrize(
    "content", ['{"seed": 1, "seed": 2}', '{"paper_scale": {"seed": 1, "kappa": 2, "seed": 1}}']
)
def test_a_key_that_a_file_has_twice_is_refused(tmp_path: Path, content: str) -> None:
    assert "not a JSON file (it has 'seed' twice)" in refusal(written(tmp_path, content))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "cannot read it (No such file or directory)" in refusal(tmp_path / "none.json")
    assert "cannot read it" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("settings", "flag", "value"),
    [
        ('{"batch_size": "10"}', "--batch-size", '"10"'),
        ('{"kappa": "2"}', "--kappa", '"2"'),
        ('{"ema": NaN}', "--ema", "nan"),
        ('{"threads": "2"}', "--threads", '"2"'),
        ('{"connect_timeout": {}}', "--set connect_timeout={}", ""),
        ('{"deadline": 30}', "--deadline", "30"),
        ('{"insecure": 1}', "--insecure", "1"),
    ],
)
def test_a_wrong_type_in_a_file_is_named(
    tmp_path: Path, settings: str, flag: str, value: str
) -> None:
    layer = read_config_file(written(tmp_path, settings))
    text = refused(lambda: (registry.read_settings([layer]), LaunchSettings.read(layer)))
    assert text.startswith(f"{flag} {value}".strip() + ": must be ")


def test_null_means_not_given(tmp_path: Path) -> None:
    layer = read_config_file(written(tmp_path, '{"batch_size": null, "threads": null}'))
    assert registry.read_settings([layer, {"batch_size": 3}]).training.batch_size == 3
    assert LaunchSettings.read(layer).threads == "auto"


def test_a_flag_beats_the_file_and_the_file_the_dataset(tmp_path: Path) -> None:
    file = read_config_file(written(tmp_path, '{"batch_size": 2, "seed": 2}'))
    dataset = {"batch_size": 3, "seed": 3, "local_steps": 3}
    settings = registry.read_settings([{"batch_size": 1}, file], dataset)
    assert (
        settings.training.batch_size,
        settings.training.seed,
        settings.training.local_steps,
    ) == (1, 2, 3)
    assert settings.training.iterations == MDGANSettings().training.iterations


RUNS: list[tuple[RunSettings, LaunchSettings]] = [
    (MDGANSettings(), LaunchSettings()),
    (MDGANSettings(swap_interval=0, kappa=3, seed=2**63 - 1), LaunchSettings(transport="memory")),
    (
        MDGANSettings.read(
            {"swap_epochs": 0.1, "partition": "fegan:3,9", "generator_optimizer": "sgd:lr=1e-7"},
            {"data_dir": "data/{rank}/ü"},
        ),
        LaunchSettings(threads=2, ranks="0..4", master_port=0),
    ),
    (
        MDGANSettings.read(
            {"aggregation": "trimmed-mean:1", "world_size": 9},
            {"deadline": "1.5x", "quorum": 0.75, "strikes": 1},
        ),
        LaunchSettings(liveness_timeout=4.5, credentials="~/run.cred"),
    ),
    (
        FederatedSettings.read(
            {"round_iterations": 7, "sampling": "balanced", "weighting": "samples"},
            {"training_load": "weak:0.3,memory", "clusters": "kmeans:3"},
            {"wire": "models=topk:0.1", "deadline": "20", "on_deadline": "abort"},
        ),
        LaunchSettings(workers_per_host=3, insecure=True),
    ),
    (StandaloneSettings(kappa=2, precision="bf16"), LaunchSettings(device="auto")),
]


@pytest.mark.parametrize(("run", "launch"), RUNS, ids=range(len(RUNS)))
def test_what_a_run_writes_can_be_read_back(
    tmp_path: Path, run: RunSettings, launch: LaunchSettings
) -> None:
    content = json.dumps({**run.as_json(), **launch.as_json()})
    layer = read_config_file(written(tmp_path, content))
    assert registry.read_settings([layer]) == run
    assert LaunchSettings.read(layer) == launch
