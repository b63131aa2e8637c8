"""What runs record since version 0.7: memory, losses by worker, neighbours, machine, defaults."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mdgan.observe.grid import grid_png
from mdgan.records.recorded_run import RecordedRun
from mdgan.report.compose import compose
from mdgan.report.figures import operators
from mdgan.report.figures.costs import memory_by_process, moved_bytes
from mdgan.report.numbers.subject import subjects
from mdgan.report.numbers.traffic import Rate
from tests.unit.observe.fake_run import FakeRun
from tests.unit.report.parsed_page import ParsedPage

torch = pytest.importorskip("torch")


def rewrite(path: Path, change: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def add(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = FakeRun(workers=2, iterations=40).write(tmp_path / "run")
    system = {"processor": "Abacus 3000", "torch": "9.9.9"}
    rewrite(path / "run.json", {"system": system, "other_defaults": {"batch_size": 77}})
    lines = (path / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    nearest = {"n": 360, "generated": 4.5, "real": 2.25}
    for row in rows:
        if "generator_loss" in row:
            row["by_worker"] = {"1": [0.5, 0.7], "2": [1.5, None]}
            row["staleness"] = {"1": [1.5, 2], "2": [4.5, 7]}
            row["riding"] = {"1": 2.5, "2": 8.25}
        elif row["event"] == "scores":
            row["neighbours"] = nearest
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for role, sizes in (("server", (5e8, 9e8, 7e8)), ("host-1", (3e8, 3e8, 3e8))):
        for size in sizes:
            row = {"iteration": 40, "seconds": 1.0, "memory_bytes": int(size)}
            add(path / "trace" / f"{role}.jsonl", row)
    (path / "neighbours.png").write_bytes(grid_png(torch.zeros(20, 1, 8, 8), 10))
    return path


def page_of(path: Path) -> ParsedPage:
    return ParsedPage(compose([RecordedRun.read(path)], datetime.now())[0])


def test_what_was_spent_and_what_was_told_stand_at_the_top(run: Path) -> None:
    rewrite(run / "config.json", {"dp_epsilon": 8.0, "dp_delta": 1e-4, "dp_disclose": "classes"})
    add(run / "metrics.jsonl", {"event": "epsilon", "iteration": 40, "epsilon": {"1": 2, "2": 7.5}})
    text = page_of(run).text
    for said in ("7.50", "at most, rank 2, δ = 0.0001", "without noise also: classes"):
        assert said in text, said


def test_a_run_of_this_version_has_cards_for_what_it_records(run: Path) -> None:
    page = page_of(run)
    assert "ε" not in page.text
    assert page.drawn >= {"fig-memory", "fig-neighbours", "fig-losses", "fig-staleness"}
    assert "3 steps in the mean, 7 at most" in page.text
    assert "fig-free-riders" in page.drawn
    assert "workers for free riding; found: 2" in page.text
    assert "fig-fetching" not in page.drawn
    for text in ("1.20 GB in all", "500 MB", "700 MB", "by worker", "2 workers", "Abacus 3000"):
        assert text in page.text, text
    assert "a sample lies 4.5 from its nearest neighbour, a real one 2.25 (medians)" in page.text
    assert "no worker's shard is looked at" in page.text
    assert "Not the default" in page.text
    assert "77" in page.text
    assert "Bytes an iteration" in page.text  # rows with memory alone are no counts of bytes


@pytest.mark.slow
def test_old_runs_leave_these_cards_out(tmp_path: Path) -> None:
    page = page_of(FakeRun(workers=2, iterations=40).write(tmp_path / "run"))
    assert not page.drawn & {"fig-memory", "fig-neighbours", "fig-staleness", "fig-free-riders"}
    for text in ("by worker", "Not the default", "The server's machine"):
        assert text not in page.text


@pytest.mark.slow
def test_a_picture_of_neighbours_that_is_cut_off_is_left_out(run: Path) -> None:
    (run / "neighbours.png").write_bytes(b"\x89PNG cut")
    assert "fig-neighbours" not in page_of(run).drawn


def test_records_of_other_shapes_do_not_stop_the_report(run: Path) -> None:
    for strange in ({"x": 3}, 5, {"1": [1.0]}):
        add(run / "metrics.jsonl", {"iteration": 40, "by_worker": strange})
    add(run / "trace" / "server.jsonl", {"iteration": 40, "seconds": 1.0, "memory_bytes": "much"})
    page = page_of(run)
    assert "make no sense and are left out" in page.text
    assert "fig-memory" in page.drawn


def test_the_server_comes_first_and_hosts_by_number(tmp_path: Path) -> None:
    (subject,) = subjects([RecordedRun.read(FakeRun(workers=2).write(tmp_path / "run"))])
    sizes = {"host-10": [9], "scorer": [5], "host-2": [1, 8], "server": [3]}
    panel = memory_by_process([(subject, sizes)]).panels[0]
    named = [label.get_text() for label in panel.figure.axes[0].get_yticklabels()]
    assert named == ["server", "scorer", "host-2", "host-10"]


def test_no_two_kinds_of_messages_are_drawn_alike(tmp_path: Path) -> None:
    (subject,) = subjects([RecordedRun.read(FakeRun(workers=2).write(tmp_path / "run"))])
    moved = Rate({"round": 9.0, "extractor": 8.0, "real": 7.0, "news": 6.0}, {"update": 9.0})
    panel = moved_bytes([(subject, {"server": moved})]).panels[0]
    (legend,) = panel.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("round", "update", "extractor", "other")
    ]
    fills = [patch.get_facecolor() for patch in legend.get_patches()]
    assert len(set(fills)) == len(fills)


@pytest.mark.slow
def test_waiting_for_data_is_drawn_where_it_was_told(run: Path) -> None:
    common = {"event": "fetching", "seconds": 1.0, "batches": 10, "longest_seconds": 0.75}
    for k, role in enumerate(("host-1", "host-2", "host-1", "host-2")):
        told = {"iteration": 10 * (k + 1), "waited_seconds": 0.5 * k, "threads": 1 + k}
        add(run / "metrics.jsonl", {**common, **told, "role": role, "buffer": 20})
    add(run / "metrics.jsonl", {**common, "iteration": 50, "role": "host-1", "threads": -1})
    page = page_of(run)
    assert "fig-fetching" in page.drawn
    for text in ("75.0 ms a batch, 750 ms at most, with up to 4 threads", "host-2"):
        assert text in page.text
    assert "1 line(s) make no sense" in " ".join(RecordedRun.read(run).damage)


def test_what_was_profiled_is_drawn_by_role(run: Path) -> None:
    common = {"event": "profile", "iteration": 20, "first": 11, "last": 20, "cores": 4}
    spent = {"convolution": 3.0, "waiting": 1.0}
    for role, gpu in (("host-1", 0.5), ("server", None), ("host-2", 1.0)):
        told = {"profiled_seconds": 4.0, "operators": spent, "busy_cores": 1.5, "gpu": gpu}
        add(run / "metrics.jsonl", {**common, **told, "role": role})
    add(run / "metrics.jsonl", {**common, "role": "host-1", "operators": {"<b>": 1.0}})
    recorded = RecordedRun.read(run)
    assert "1 line(s) make no sense" in " ".join(recorded.damage)
    (subject,) = subjects([recorded])
    picture = operators.profiled([(subject, operators.by_role(subject))])
    header, rows = picture.table
    assert header[1:] == ("iterations", "convolution", "waiting", "cores busy", "GPU busy")
    assert [row[1:] for row in rows] == [
        ("11 to 20", "75.0 %", "25.0 %", "1.50 of 4", "–"),
        ("11 to 20", "75.0 %", "25.0 %", "1.50 of 4", "75 %"),
    ]
    assert picture.seen.startswith("server: 75 % convolution, 1.50 of 4 cores busy; a host, mean: ")
