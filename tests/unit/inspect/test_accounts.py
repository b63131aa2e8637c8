"""What a person reads of a privacy account."""

import json
from pathlib import Path

import pytest

from mdgan.privacy.ledger import Ledger
from mdgan.privacy.ledger_view import Plan
from tests.processes import run_here
from tests.unit.privacy.test_ledger import OTHER, of, spend, take

pytest.importorskip("opacus")


def plan(epsilon: float | None, noise: float) -> Plan:
    asked = json.dumps([epsilon, 1e-5, None, "rdp", 0.1, 20, 1, "sample"])
    return Plan(asked, "sample", "rdp", noise, 0.1, 20, 20, 6.0)


def test_the_account_says_who_has_spent_what_in_which_runs_and_what_is_left(tmp_path: Path) -> None:
    spend(tmp_path, range(1200), 20, plan(8.0, 1.5))
    spend(tmp_path, range(3), 7, plan(9.0, 2.5))
    shown = run_here("ledger", "--dp-ledger", str(tmp_path), cwd=tmp_path)
    folder, _, _, once, twice = shown.output.splitlines()
    assert folder == str(tmp_path)
    assert once.startswith("             1,197     ")
    assert once.endswith("  1e-05  1 (20 steps, σ 1.5)")
    assert twice.endswith("  1e-05  1 (20 steps, σ 1.5), 2 (7 steps, σ 2.5)")
    for line, bound in ((once, 8.0), (twice, 9.0)):
        spent, of_bound, left = map(float, line.split()[1:4])
        assert of_bound == bound
        assert 0 < spent == pytest.approx(bound - left, abs=0.01)
    assert float(twice.split()[1]) > float(once.split()[1])


def test_what_runs_reserve_counts_and_an_account_may_have_no_bound(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, of(range(5)), lambda _: plan(None, 1.5))
    take(ledger, 3)
    line = run_here("ledger", "--dp-ledger", str(tmp_path), cwd=tmp_path).output.splitlines()[-1]
    ledger.close()
    assert line.split()[2:4] == ["–", "–"]
    assert line.endswith("1 (20 steps, σ 1.5)")


@pytest.mark.parametrize(("begins", "says"), [(False, "has spent here yet;"), (True, "damaged")])
def test_what_is_no_account_is_refused_in_a_line(begins: bool, says: str, tmp_path: Path) -> None:
    if begins:
        spend(tmp_path, range(5), 7, OTHER)  # its plan does not say what was asked
    refused = run_here("ledger", "--dp-ledger", str(tmp_path), cwd=tmp_path)
    assert refused.status == 2, refused
    (line,) = refused.errors.splitlines()
    assert says in line
