"""The output of runs on tables whose workers send sums over pairs of columns."""

import json
from pathlib import Path

import pytest

from tests.integration.test_tables import SCHEMA, SECURE, site
from tests.processes import ended_well, read_events, run_here
from tests.unit.report.test_page import checked

COLUMNS = ["age", "sex", "grade", "dose"]


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    (tmp_path / "study.json").write_text(json.dumps(SCHEMA))
    for number in range(1, 4):
        (tmp_path / f"site-{number}.csv").write_text(site(number, 200))
    return tmp_path


def test_the_report_shows_how_near_pairs_are_to_what_was_told(sites: Path) -> None:
    flags = [
        *("train", "--algorithm", "moments", "--dataset", "table", "--schema", "study.json"),
        *("--target", "sick", "--data-dir", "site-{rank}.csv", "--world-size", "4", *SECURE),
        *("--transport", "memory", "--iterations", "60", "--batch-size", "60", "--threads", "1"),
        *("--sample-interval", "0", "--eval-interval", "0", "--checkpoint-interval", "40"),
    ]
    ended = run_here(*flags, "--out", "run", cwd=sites)
    ended_well(ended, sites / "run", 60)
    assert "a worker tells 6 pairs of columns" in ended.errors
    events = read_events(sites / "run", "told pairs")
    assert [event["iteration"] for event in events] == [40, 60]
    assert events[-1]["correlated"] == COLUMNS
    assert events[-1]["real"] == [[1.0] * 4] * 4, "without noise nothing is explained by it"
    page, _ = checked(sites / "run")
    assert "fig-told-pairs" in page.drawn
    assert "sex and dose" in page.text
