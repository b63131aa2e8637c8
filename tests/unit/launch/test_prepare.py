"""What is checked and read before anything starts."""

import json
from pathlib import Path

from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.prepare import prepare
from mdgan.launch.settings import LaunchSettings

SMALL = {"world_size": 3, "iterations": 10, "eval_interval": 0, "batch_size": 8}


def test_a_run_saves_all_settings_but_its_folder(tmp_path: Path) -> None:
    prepared = prepare({**SMALL, "out": str(tmp_path / "run"), "threads": 1})
    saved = json.loads(json.dumps(prepared.config))
    assert saved.keys() == (MDGANSettings.names() | LaunchSettings.names()) - {"out"}
    assert registry.read_settings([saved]) == prepared.settings
    assert LaunchSettings.read(saved) == LaunchSettings(threads=1)
    assert not (tmp_path / "run").exists()


def test_what_must_be_equal_on_every_rank_is_what_decides_the_result() -> None:
    one, other = (prepare({**SMALL, **own}) for own in ({"threads": 1}, {"strikes": 9}))
    assert one.identity == other.identity
    assert one.identity != prepare({**SMALL, "seed": 1}).identity
    assert one.identity.keys() >= {"version", "seed", "batch_size", "dataset_sha256", "extractor"}
    assert not one.identity.keys() & LaunchSettings.names()


def test_the_baseline_holds_all_data() -> None:
    prepared = prepare({**SMALL, "algorithm": "standalone"})
    (source, indices) = prepared.holdings[1]
    assert len(indices) == len(source)
    assert list(prepared.holdings) == [1]


def test_threads_that_have_nothing_to_read_are_told() -> None:
    (line,) = prepare({**SMALL, "data_threads": 4}).warnings
    assert line.startswith("--data-threads 4: --dataset digits reads nothing when it is drawn")
    assert prepare(SMALL).warnings == ()
