"""How many workers share a process if the user does not say."""

from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.data.dataset_file import load
from mdgan.launch import machine
from mdgan.launch.checked import prepare
from mdgan.launch.given import Given
from mdgan.launch.machine import default_host_size, kept_size, size_for
from mdgan.launch.models import models_of
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.settled import default_settings, settings_with

LITTLE = 1e6


@pytest.mark.parametrize(
    ("num_workers", "cores", "operations", "size"),
    [
        (20, 2, LITTLE, 10),
        (20, 2, 351e6, 1),
        (20, 2, inf, 1),
        (4, 2, LITTLE, 2),
        (5, 2, LITTLE, 3),
        (2, 2, LITTLE, 1),
        (3, 16, LITTLE, 1),
        (20, 1, LITTLE, 20),
        (100, 64, LITTLE, 1),
        (130, 64, LITTLE, 2),
    ],
)
def test_a_host_a_core_where_answers_take_little(
    num_workers: int, cores: int, operations: float, size: int
) -> None:
    assert size_for(num_workers, cores, operations) == size


@given(st.integers(1, 2000), st.integers(1, 256))
def test_no_core_is_left_without_a_host(num_workers: int, cores: int) -> None:
    hosts = -(-num_workers // size_for(num_workers, cores, LITTLE))
    assert hosts >= min(num_workers, cores)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "num_cores", lambda: 2)


def chosen(**layer: Any) -> int:
    layer = {"world_size": 7, **layer}
    dataset = load("digits", None)
    settings = settings_with([layer], default_settings([layer], dataset))
    return default_host_size(settings, LaunchSettings.read(layer), models_of(settings, dataset))


@pytest.mark.usefixtures("two_cores")
def test_small_models_share_and_large_do_not() -> None:
    assert chosen() == 3
    assert chosen(local_steps=1000) == 1
    assert chosen(architecture="sngan") == 1


EXCLUDED: dict[str, dict[str, Any]] = {
    "given": {"workers_per_host": 1},
    "memory": {"transport": "memory"},
    "ranks": {"ranks": "0..3"},
    "listen": {"listen": "127.0.0.1:0"},
    "another address": {"master_addr": "127.0.0.1,127.0.0.2"},
    "device": {"device": "cuda"},
    "cores": {"cores": "0,1"},
    "deadline": {"deadline": "3x"},
    "some take part": {"participation": 0.5},
    "vectorized": {"vectorize": True},
    "by arrival": {"updates": "arrival"},
    "masks": {"secure_aggregation": True, "kappa": 1},
    "private": {"dp_noise": 1.0, "dp_delta": 1e-5},
    "federated": {"algorithm": "fl-gan"},
    "clients": {"algorithm": "fl-gan", "clients": 5},
    "data-parallel": {"algorithm": "paragan"},
}


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("name", EXCLUDED)
def test_each_has_its_own_where_that_could_matter_otherwise(name: str) -> None:
    assert chosen(**EXCLUDED[name]) == 1


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("threads", ["auto", 1])
def test_what_was_measured_here_counts_if_it_changes_no_bit(threads: int | str) -> None:
    layer = {"world_size": 7, "threads": threads, "local_steps": 1000}
    dataset = load("digits", None)
    settings = settings_with([layer], default_settings([layer], dataset))
    models = models_of(settings, dataset)
    launch = LaunchSettings.read(layer)
    for measured in (3, 2, 6):
        kept_size(settings, launch, models.source).write(measured)
        assert default_host_size(settings, launch, models) == measured
    assert chosen(threads=threads) == 3, "another run, which was not measured"


def test_one_host_with_more_threads_is_not_taken_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "num_cores", lambda: 4)
    layer = {"world_size": 7}
    dataset = load("digits", None)
    settings = settings_with([layer], default_settings([layer], dataset))
    models, launch = models_of(settings, dataset), LaunchSettings.read(layer)
    assert default_host_size(settings, launch, models) == 1
    kept_size(settings, launch, models.source).write(6)  # 4 // 2 processes: two threads
    assert default_host_size(settings, launch, models) == 1


@pytest.mark.usefixtures("two_cores")
def test_a_run_has_its_processes_so_but_not_under_planned_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = {"world_size": 7, "iterations": 10}
    prepared = prepare(Given([layer]))
    assert prepared.ranks.hosts == ((1, 2, 3), (4, 5, 6))
    assert prepared.config["workers_per_host"] is None, "a resumed run chooses anew"
    monkeypatch.setenv("MDGAN_FAULTS", "host-2:kill@swap:5")
    assert prepare(Given([layer])).ranks.hosts == tuple((n,) for n in range(1, 7))
