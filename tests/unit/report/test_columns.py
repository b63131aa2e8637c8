"""Figures of columns, from a file that may be damaged or foreign."""

import json
from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_directory import ENCODING_FILE, FIGURES_FILE, TOLD_PAIRS
from mdgan.report.figures.columns import correlations, table_figures
from tests.unit.observe.fake_run import FakeRun
from tests.unit.report.test_page import checked

COLUMN = {"name": "age", "kind": "whole", "ticks": ["0", "9"], "real": [1.0], "made": [0.9]}
WARD = {"name": "ward", "kind": "category", "ticks": ["A"], "real": [1.0], "made": [1.0]}
FOUND: dict[str, Any] = {
    "columns": [COLUMN, WARD],
    "correlated": ["age", "sex"],
    "made": [[1.0, 0.2], [0.2, None]],
    "real": [[1.0, -0.4], [-0.4, 1.0]],
}


def recorded(folder: Path, content: str) -> RecordedRun:
    path = FakeRun(iterations=20).write(folder / "run")
    (path / FIGURES_FILE).write_text(content)
    (path / ENCODING_FILE).write_bytes(b"")
    return RecordedRun.read(path)


def test_columns_are_drawn_and_pictures_are_not_missed(tmp_path: Path) -> None:
    run = recorded(tmp_path, json.dumps(FOUND))
    page, missing = checked(run.path)
    assert "fig-columns" in page.drawn
    assert "fig-samples" not in page.drawn | missing.keys()
    assert "age and sex" in page.text
    assert "-0.40" in page.text


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{**COLUMN, "real": [0.5, 0.5]}]},
        {"columns": [{**COLUMN, "made": [7.0]}]},
        {"columns": [{**WARD, "ticks": []}]},
        {"columns": "none"},
    ],
)
def test_a_file_that_makes_no_sense_is_as_none(tmp_path: Path, change: dict[str, object]) -> None:
    assert table_figures(recorded(tmp_path, json.dumps(FOUND | change))) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"columns": ' + "[" * 100_000])
def test_damage_is_as_no_file(tmp_path: Path, content: str) -> None:
    assert table_figures(recorded(tmp_path, content)) is None


@pytest.mark.parametrize(
    "change", [{"made": [[1.0]]}, {"real": [[1.0], [1.0]]}, {"correlated": []}]
)
def test_matrices_that_do_not_fit_are_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    run = recorded(tmp_path, json.dumps(FOUND | change))
    assert correlations(run) is None
    assert table_figures(run) is not None


TOLD: dict[str, Any] = {
    "event": TOLD_PAIRS,
    "iteration": 10,
    "correlated": ["age", "sex"],
    "made": [[0.9, 0.61], [0.61, 0.95]],
    "real": [[0.98, 0.83], [0.83, 0.99]],
}


def test_the_newest_pairs_that_were_told_are_drawn(tmp_path: Path) -> None:
    later = {**TOLD, "iteration": 20, "made": [[0.9, 0.72], [0.72, 0.95]]}
    page, _ = checked(FakeRun(iterations=20, faults=[TOLD, later]).write(tmp_path / "run"))
    assert "fig-told-pairs" in page.drawn
    assert "age and sex" in page.text
    assert "0.83" in page.text
    assert "0.72" in page.text
    assert "0.61" not in page.text


@pytest.mark.parametrize(
    "change",
    [
        {"made": [[1.0]]},
        {"real": [[1.0, 1.0]]},
        {"made": [[1.0, 7.0], [7.0, 1.0]]},
        {"correlated": "age"},
        {"correlated": []},
    ],
)
def test_told_pairs_that_make_no_sense_are_as_none(
    tmp_path: Path, change: dict[str, object]
) -> None:
    page, _ = checked(FakeRun(iterations=20, faults=[TOLD | change]).write(tmp_path / "run"))
    assert "fig-told-pairs" not in page.figures
