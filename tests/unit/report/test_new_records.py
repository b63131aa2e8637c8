"""Records since version 0.7: memory, numbers of workers, neighbours, machine, defaults."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.report.figures import costs, samples
from mdgan.report.figures.picture import OfRun, Picture, by_run
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.traffic import Rate
from mdgan.samples.kinds import grid_png
from tests.unit.observe.fake_run import FakeRun
from tests.unit.report.parsed_page import page_of, subject_of


def rewrite(path: Path, change: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def add(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def shown(subject: Subject, of: Callable[[Subject], OfRun | None]) -> Picture:
    result = of(subject)
    assert result is not None
    return by_run([(subject, result)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = FakeRun(workers=2, iterations=40).write(tmp_path / "run")
    system = {"processor": "Abacus 3000", "torch": "9.9.9"}
    rewrite(path / "run.json", {"system": system, "other_defaults": {"batch_size": 77}})
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if "generator_loss" in row:
            row["by_worker"] = {"1": [0.5, 0.7], "2": [1.5, None]}
            row["staleness"] = {"1": [1.5, 2], "2": [4.5, 7]}
            row["riding"] = {"1": 2.5, "2": 8.25}
        elif row["event"] == "scores":
            row["neighbours"] = {"n": 360, "generated": 4.5, "real": 2.25}
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for role, sizes in (("server", (5e8, 9e8, 7e8)), ("host-1", (3e8, 3e8, 3e8))):
        held = [{"iteration": 40, "seconds": 1.0, "memory_bytes": int(size)} for size in sizes]
        add(path / "trace" / f"{role}.jsonl", *held)
    (path / "neighbours.png").write_bytes(grid_png(torch.zeros(20, 1, 8, 8), 10))
    return path


def test_a_page_has_what_a_run_of_this_version_records(run: Path) -> None:
    rewrite(run / "config.json", {"dp_epsilon": 8.0, "dp_delta": 1e-4, "dp_disclose": "classes"})
    add(run / "metrics.jsonl", {"event": "epsilon", "iteration": 40, "epsilon": {"1": 2, "2": 7.5}})
    page, _ = page_of(run)
    assert page.drawn >= {"fig-samples", "fig-losses", "fig-by-worker"}
    assert "table-memory" in page.ids
    assert "table-fetching" not in page.ids
    for text in (
        *("7.50", "at most (rank 2), δ = 0.0001", "without noise also: classes"),
        *("3 steps old in the mean, 7 at most", "2 workers, free rider: found: 2"),
        *("500 MB", "700 MB", "by worker", "2 workers", "Abacus 3000", "Not the default", "77"),
        "a sample lies 4.5 from its nearest neighbour, a real one 2.25 (medians)",
        "held-out samples, but no shard",
        "Bytes an iteration",  # rows with memory alone are no counts of bytes
    ):
        assert text in page.text, text


def test_records_of_other_shapes_are_left_out(run: Path) -> None:
    for strange in ({"x": 3}, 5, {"1": [1.0]}):
        add(run / "metrics.jsonl", {"iteration": 40, "by_worker": strange})
        add(run / "metrics.jsonl", {"iteration": 40, "riding": strange, "staleness": [strange]})
    add(run / "trace" / "server.jsonl", {"iteration": 40, "seconds": 1.0, "memory_bytes": "much"})
    (run / "neighbours.png").write_bytes(b"\x89PNG cut")
    subject = subject_of(run)
    assert "3 line(s) make no sense and are left out" in " ".join(subject.run.damage)
    assert {row[1] for row in shown(subject, costs.memory).table.rows} == {"server", "host-1"}
    assert samples.nearest_real(subject) is None


def test_memory_stands_by_process_the_server_first(run: Path) -> None:
    for role in ("host-10", "scorer", "host-2"):
        add(run / "trace" / f"{role}.jsonl", {"iteration": 1, "seconds": 1.0, "memory_bytes": 9})
    subject = subject_of(run)
    picture = shown(subject, costs.memory)
    roles = ("server", "scorer", "host-1", "host-2", "host-10")
    assert [row[:2] for row in picture.table.rows] == [("2 workers", role) for role in roles]
    assert picture.table.rows[0][2:] == ("500 MB", "900 MB", "700 MB")
    assert picture.seen == "1.20 GB in all."


def test_no_two_kinds_of_messages_are_drawn_alike(run: Path) -> None:
    moved = Rate({"round": 9.0, "extractor": 8.0, "real": 7.0, "news": 6.0}, {"update": 9.0})
    panel = costs.moved_bytes([(subject_of(run), {"server": moved})]).panels[0]
    (legend,) = panel.figure.legends
    names = ["round", "update", "extractor", "other"]
    assert [text.get_text() for text in legend.get_texts()] == names
    assert len({patch.get_facecolor() for patch in legend.get_patches()}) == len(names)


def test_waiting_for_data_stands_by_process(run: Path) -> None:
    common = {"event": "fetching", "seconds": 1.0, "batches": 10, "longest_seconds": 0.75}
    for k, role in enumerate(("host-1", "host-2", "host-1", "host-2")):
        told = {"iteration": 10 * (k + 1), "waited_seconds": 0.5 * k, "threads": 1 + k}
        add(run / "metrics.jsonl", {**common, **told, "role": role, "buffer": 20})
    add(run / "metrics.jsonl", {**common, "iteration": 50, "role": "host-1", "threads": -1})
    subject = subject_of(run)
    assert "1 line(s) make no sense" in " ".join(subject.run.damage)
    picture = shown(subject, costs.fetching)
    assert picture.seen == "75.0 ms a batch, 750 ms at most, with up to 4 threads."
    assert picture.table.rows[-1] == (
        *("2 workers", "host-2", "40", "150 ms", "750 ms", "4", "20"),
    )  # fmt: skip


def test_what_was_profiled_stands_by_role(run: Path) -> None:
    common = {"event": "profile", "iteration": 20, "first": 11, "last": 20, "cores": 4}
    spent = {"convolution": 3.0, "waiting": 1.0}
    for role, gpu in (("host-1", 0.5), ("server", None), ("host-2", 1.0)):
        told = {"profiled_seconds": 4.0, "operators": spent, "busy_cores": 1.5, "gpu": gpu}
        add(run / "metrics.jsonl", {**common, **told, "role": role})
    add(run / "metrics.jsonl", {**common, "role": "host-1", "operators": {"<b>": 1.0}})
    subject = subject_of(run)
    assert "1 line(s) make no sense" in " ".join(subject.run.damage)
    picture = shown(subject, costs.operators)
    columns = ("role", "iterations", "convolution", "waiting", "cores busy", "GPU busy")
    rows = [dict(zip(picture.table.header, row, strict=True)) for row in picture.table.rows]
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("server", "11 to 20", "75.0 %", "25.0 %", "1.50 of 4", "–"),
        ("a host, mean", "11 to 20", "75.0 %", "25.0 %", "1.50 of 4", "75 %"),
    ]
    assert picture.seen.startswith("server: 75 % convolution, 1.50 of 4 cores busy; a host, mean: ")
