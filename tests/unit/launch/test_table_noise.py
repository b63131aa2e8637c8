"""What mdgan says about noise in tables before it spends anything."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mdgan.errors import BadInput
from mdgan.families.moments.settings import MomentsSettings
from mdgan.launch.budget_checks import check_budgets
from mdgan.spelling import spelled
from tests.misspelled import misspelled
from tests.unit.launch.table_sites import STUDY, Site, write_site

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")


def told(folder: Path, epsilon: float, workers: int = 1, secure: bool = False) -> list[str]:
    """What is said before the only worker here tells of its 40 rows."""
    values = {
        **{"dp_epsilon": epsilon, "dp_delta": 1e-5, "dp_ledger": str(folder / "ledger")},
        **{"world_size": workers + 1, "secure_aggregation": secure, "architecture": "table"},
    }
    site = Site(folder, write_site(folder), STUDY)
    samples = replace(site.samples, settings=MomentsSettings.read(values))
    return [said for said in check_budgets(samples, serves=False) if "noise of" in said]


def test_noise_that_hides_all_is_refused_with_the_least_epsilon(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"of .* rows hides the 10 in each two") as error:
        told(tmp_path, 0.5)
    for in_python, setting in ((False, "--dp-epsilon 0.5: "), (True, "dp_epsilon=0.5: ")):
        assert spelled(error.value.marked, in_python=in_python).startswith(setting)
    assert not misspelled(error.value.marked, "families")
    match = re.search("give an ε of ([0-9.]+) or more", str(error.value))
    assert match is not None
    least = float(match[1])
    assert 0.5 < least < 5
    assert told(tmp_path, least) == []
    with pytest.raises(BadInput, match="hides"):
        told(tmp_path, 0.8 * least)
    assert not (tmp_path / "ledger").exists(), "nothing is spent"


def test_where_others_hold_rows_it_is_a_warning_and_shared_noise_is_less(tmp_path: Path) -> None:
    (said,) = told(tmp_path, 0.5, workers=2)
    assert "that is if all workers hold as many rows" in said
    assert told(tmp_path, 0.5, workers=40, secure=True) == []


def test_one_line_says_what_telling_once_would_give_a_table(tmp_path: Path) -> None:
    for visits in (1, 80):  # 80 rows, and more than so many that of pictures nothing is said
        site = Site(tmp_path, write_site(tmp_path, 80, visits), STUDY)
        (warning,) = [line for line in site.warnings() if "in every step" in line]
        result = spelled(warning)
        assert "--algorithm moments adds it once: LR 0.99, GB 1.00, pairs 0.96" in result
        assert "5,092 rows × 9 columns" in result
