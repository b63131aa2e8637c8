"""The settings of one machine."""

from typing import Any

import pytest

from mdgan.launch.settings import LaunchSettings
from tests.unit.settings.refusals import WRONG_TYPES, misfits, refusal, starts

BAD_VALUES: dict[str, list[Any]] = {
    "workers_per_host": [0, "2"],
    "transport": ["carrier-pigeon"],
    "liveness_timeout": [0.0, float("inf"), float("nan")],
    "patience": [-0.1, float("inf"), float("nan")],
    "device": ["tpu", None],
    "master_addr": [None],
    "master_port": [-1, 65536],
    "threads": [0, "all"],
    "connect_timeout": [0, -5.0, float("nan"), float("inf")],
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_value_is_named_with_its_flag(name: str) -> None:
    for value in BAD_VALUES[name]:
        text = refusal(LaunchSettings, {name: value})
        assert text.startswith(starts(LaunchSettings, name, value))


@pytest.mark.parametrize("value", WRONG_TYPES, ids=str)
def test_every_setting_refuses_values_of_a_wrong_type(value: Any) -> None:
    for name in misfits(LaunchSettings, value):
        assert refusal(LaunchSettings, {name: value}).startswith(
            starts(LaunchSettings, name, value)
        )


def test_whole_numbers_are_taken_for_numbers_with_a_point() -> None:
    assert type(LaunchSettings(connect_timeout=3).links.connect_timeout) is float


def test_settings_of_a_run_are_passed_over() -> None:
    layers = ({"threads": 2, "seed": 5}, {"threads": 3, "device": "cuda", "beta1": 0.0})
    assert LaunchSettings.read(*layers) == LaunchSettings(threads=2, device="cuda")


def test_nothing_of_it_must_be_equal_on_every_machine() -> None:
    assert LaunchSettings().as_json(shared=True) == {}
    assert LaunchSettings().as_json().keys() == LaunchSettings.names()


def test_a_worker_need_not_wait_for_a_server_at_all() -> None:
    assert LaunchSettings(patience=0).links.patience == 0.0


def test_addresses_of_server_and_standbys() -> None:
    assert LaunchSettings(master_addr="a, b,c").links.addresses() == ["a", "b", "c"]


def test_ranks_make_no_sense_in_one_process() -> None:
    assert "--ranks 0,1" in refusal(LaunchSettings, {"transport": "memory", "ranks": "0,1"})
