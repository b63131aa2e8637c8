"""What is checked and read before anything starts, and what a machine says of its data."""

import json
import threading
from pathlib import Path

import pytest
import torch

from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.guests import of_the_run
from mdgan.launch.prepare import prepare
from mdgan.launch.privacy import check_budgets, flush_denormals
from mdgan.launch.resolve import known_settings
from mdgan.launch.settings import LaunchSettings
from tests.unit.privacy.halves import make_shard

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


def test_a_server_says_nothing_to_a_newcomer_of_what_is_the_users_own() -> None:
    own = {
        **{"datasets_dir": "/tmp", "data_dir": "/", "log_file": "/etc/motd", "insecure": True},
        **{"dp_ledger": "/tmp/new", "require": "dp"},
    }
    assert own.keys() <= known_settings()
    of_run = {"algorithm": "mdgan", "dataset": "digits", "dp_epsilon": 8.0, "seed": 3}
    said = {"version": "1", "dataset_sha256": "0", "extractor": "x", **own, **of_run, "new": 1}
    assert of_the_run(said) == of_run


def left_by_a_new_thread(settings: MDGANSettings) -> int:
    """How many of four million products below 10⁻³⁸ are not 0, with two threads."""
    found: list[int] = []

    def compute() -> None:
        torch.set_num_threads(2)
        flush_denormals(settings)
        found.append(int((torch.full((1 << 22,), 1e-20) * 1e-20).count_nonzero()))

    before = torch.get_num_threads()
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    return found[0]


def test_all_threads_of_a_private_host_count_them_as_0() -> None:
    assert left_by_a_new_thread(MDGANSettings(dp_noise=1.0, dp_delta=1e-4)) == 0
    assert left_by_a_new_thread(MDGANSettings()) == 1 << 22


@pytest.mark.parametrize(("delta", "rank"), [(0.01, ""), (0.04, "rank 2"), (0.1, "rank 2 (and 1")])
def test_a_delta_that_allows_to_give_samples_away_is_told_once(delta: float, rank: str) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    given = {"dp_noise": 2.0, "dp_delta": delta, "world_size": 3}
    shards = {1: make_shard(20), 2: make_shard(30)}
    warnings = check_budgets(MDGANSettings.read(given), shards, {}, serves=False)
    said = [line for line in warnings if "--dp-delta" in line]
    assert len(said) == bool(rank)
    assert all(rank in line and "one of its 30 samples" in line for line in said)
