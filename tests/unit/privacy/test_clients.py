"""A host's account of its clients' samples: each round counts, and the bound is the host's own."""

from collections.abc import Iterable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.errors import BadInput
from mdgan.privacy.accountant import PrivacyCharge, PrivacyHistory
from mdgan.privacy.budget import ClientsAccount, disclosed_histories
from mdgan.privacy.ledger import look_up
from mdgan.privacy.noise import SENSITIVITY, lattice_step
from mdgan.privacy.planning import StepSchedule
from mdgan.privacy.settings import PrivacySettings
from tests.claims.registry import claim
from tests.unit.privacy.test_ledger import of, spend

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

BOUND = PrivacySettings(dp_epsilon=4.0, dp_delta=0.01)
BARE = PrivacySettings(dp_noise=2.0, dp_delta=0.01)
ROUND: dict[str, Any] = {"run": "one", "noise": 2.0, "rounds": 10, "taken": 0}


def account(
    folder: Path, samples: Iterable[int] = range(5), given: PrivacySettings = BOUND
) -> ClientsAccount:
    schedule = StepSchedule.of_clients("digits", 0.5, 1)
    return ClientsAccount(given, schedule, folder, of(list(samples)))


def steps_of(folder: Path, *samples: int) -> int:
    return look_up(folder, of(samples)).taken


def begin_rounds(host: ClientsAccount, first: int, last: int, **changed: Any) -> None:
    for taken in range(first, last):
        host.begin_round({**ROUND, "taken": taken, "rounds": 10 - taken, **changed})


@claim(
    "client-account", "Each host writes every round down in its own ledger before the round begins."
)
def test_each_round_counts_once_also_for_a_host_that_comes_back(tmp_path: Path) -> None:
    host = account(tmp_path)
    assert host.tell() == {}
    begin_rounds(host, 0, 3)
    begin_rounds(host, 2, 3)  # no client answered, so it begins again
    assert steps_of(tmp_path, 4) == 3, "written before the round, not at the end"
    host.close()
    again = account(tmp_path)
    begin_rounds(again, 5, 10)  # the host was away for two
    again.close()
    assert look_up(tmp_path, of([1])).histories[0].charges == (PrivacyCharge(2.0, 0.5, 8),)
    with pytest.raises(BadInput, match="begins more rounds than it said"):
        begin_rounds(account(tmp_path), 10, 14, rounds=1)
    assert steps_of(tmp_path, 4) == 10


@claim(
    "client-account", "Each host writes every round down in its own ledger before the round begins."
)
def test_another_run_is_another_plan_and_all_count(tmp_path: Path) -> None:
    host = account(tmp_path)
    begin_rounds(host, 0, 2)
    begin_rounds(host, 0, 2, run="two", noise=4.0)
    host.close()
    (past,) = look_up(tmp_path, of([1])).histories
    assert past.charges == (PrivacyCharge(2.0, 0.5, 2), PrivacyCharge(4.0, 0.5, 2))
    other = account(tmp_path, [4, 77])
    assert disclosed_histories([other.tell()], BOUND) == (past,)
    with pytest.raises(
        BadInput, match=r"--dp-epsilon 4: samples of clients here have spent .*give"
    ):
        begin_rounds(other, 0, 1, run="three", noise=0.8)
    assert steps_of(tmp_path, 77) == 0
    begin_rounds(account(tmp_path, [4, 77], BARE), 0, 1, run="three", noise=0.8)


@claim(
    "client-account", "Each host writes every round down in its own ledger before the round begins."
)
def test_parts_of_the_noise_add_up_and_each_round_pays_for_them(tmp_path: Path) -> None:
    sharers, clip = 2, 0.5  # hosts, with four clients each
    updates = {n: torch.full((4, 1000), n / 1000, dtype=torch.float32) for n in range(1, 5)}
    total, kept = torch.zeros(4, 1000, dtype=torch.float64), []
    for number in range(2):
        host = account(tmp_path / str(number))
        host.begin_round(ROUND)
        told = host.with_part_of_noise(updates, clip, sharers)
        step = lattice_step(clip, 4000)
        for client, given in told.items():
            assert torch.equal((given / step).round() * step, given)
            total += given - updates[client]
            kept.append(given)
        with pytest.raises(BadInput, match="a round that it has not charged for"):
            host.with_part_of_noise(updates, clip, sharers)
        host.begin_round(ROUND)  # the same once more costs nothing, and gives nothing
        with pytest.raises(BadInput, match="a round that it has not charged for"):
            host.with_part_of_noise(updates, clip, sharers)
        host.begin_round({**ROUND, "taken": 1, "rounds": 9})
        assert not torch.equal(host.with_part_of_noise(updates, clip, sharers)[1], told[1])
        host.close()
    expected = ROUND["noise"] * clip * SENSITIVITY
    assert float(total.std()) == pytest.approx(expected, rel=5 / sqrt(2 * total.numel()))
    assert len({given.numpy().tobytes() for given in kept}) == 8


@claim(
    "not-both", "Runs that hide samples and runs that hide clients on the same samples are refused"
)
def test_samples_that_hid_by_themselves_hide_no_client(tmp_path: Path) -> None:
    spend(tmp_path, range(9), 1)
    with pytest.raises(BadInput, match="noise for samples hides no client"):
        begin_rounds(account(tmp_path), 0, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"noise": 3.0},
        {"noise": 0.0},
        {"noise": "2"},
        {"noise": float("nan")},
        {"rounds": 0},
        {"run": 7},
    ],
    ids=str,
)
def test_a_round_that_makes_no_sense_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    host = account(tmp_path)
    host.begin_round(ROUND)
    with pytest.raises(ValueError, match=r"noise|rounds|run|round with"):
        host.begin_round({**ROUND, "taken": 1, **changed})
    host.close()


def test_a_server_plans_with_what_hosts_say_if_it_makes_sense() -> None:
    good, spent = (
        PrivacyHistory(4.0, (PrivacyCharge(2.0, 0.5, 3),)),
        PrivacyHistory(4.0, (PrivacyCharge(0.5, 1.0, 300),)),
    )
    told: list[dict[str, Any]] = [
        {"pasts": [[4.0, [[2.0, 0.5, 3]]]], "capabilities": {}},
        {},
        {"pasts": 7},
        {"pasts": [[1.0, [[2.0, 0.5, 3]]]]},
        {"pasts": [[4.0, [[0.0, 0.5, 3]]]]},
        {"pasts": [[4.0, [[2.0, 0.5, -3]]]]},
        {"pasts": [[4.0, [[2.0, 0.5, 3]]]] * 1000},
        {"pasts": [spent]},
    ]
    assert disclosed_histories(told, BOUND) == (good,)
    assert disclosed_histories(told, BARE) == (spent, good)
