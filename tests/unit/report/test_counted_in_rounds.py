"""Reports of runs that train in rounds, where other runs train in iterations."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun, RecordedSpan, Trace
from mdgan.records.rows import RoundRow
from mdgan.report.figures import workers
from mdgan.report.figures.picture import by_run
from mdgan.report.figures.timeline import MOST_LANES, one, ten, timeline, typical_window
from mdgan.report.numbers.attendance import presences
from mdgan.report.numbers.durations import within_rounds, worker_operations
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.traffic import server_rate
from tests.unit.observe.fake_run import FakeRun
from tests.unit.observe.federated import MODELS, federated_run
from tests.unit.report.parsed_page import page_of, subject_of


def read_unscored(path: Path) -> Subject:
    """The same without the scorer, which is its own lane."""
    (path / "trace" / "scorer.jsonl").unlink()
    return subject_of(path)


def span(name: str, start: float, seconds: float, worker: int = 0) -> RecordedSpan:
    return RecordedSpan(name, worker, start, seconds, 0)


def test_every_round_that_was_averaged_has_a_duration(tmp_path: Path) -> None:
    of_run = subject_of(federated_run(tmp_path / "run", rounds=12, aborted=frozenset({2})))
    assert (of_run.unit, of_run.number_of(30)) == ("round", 6)
    assert list(of_run.durations) == [5 * n for n in range(1, 13) if n != 3]
    main = of_run.main_trace
    assert main is not None
    first, last = main.spans[30][0], main.spans[30][-1]
    assert of_run.durations[30] == pytest.approx(last.start + last.seconds - first.start)


def test_an_aborted_round_counts_to_the_one_in_its_place(tmp_path: Path) -> None:
    path = federated_run(tmp_path / "run", rounds=3, aborted=frozenset({1}))
    for name in ("metrics", "trace/server"):
        file = path / f"{name}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:  # the third round is the second attempt at the iterations up to 10
            if row["iteration"] == 15 and ("spans" in row or row.get("event") == "round"):
                row["iteration"] = 10
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_run = subject_of(path)
    assert of_run.round_numbers == {5: 1, 10: 3}
    assert list(of_run.durations) == [5, 10]
    assert of_run.durations[10] > 1.5 * of_run.durations[5]


def test_ten_rounds_in_a_row_are_chosen_after_the_first_ten(tmp_path: Path) -> None:
    of_run = subject_of(federated_run(tmp_path / "run", rounds=35))
    window = typical_window(of_run)
    assert window in (list(range(55, 101, 5)), list(range(105, 151, 5)))
    lines, middle = ten(of_run), one(of_run)
    assert lines is not None
    assert middle is not None
    assert (lines.first, lines.last) == (window[0] // 5, window[-1] // 5)
    assert lines.first <= middle.first == middle.last <= lines.last


def test_ten_rounds_are_in_a_row_where_aborted_ones_stand_between(tmp_path: Path) -> None:
    of_run = subject_of(federated_run(tmp_path / "run", rounds=23, aborted=frozenset({12, 14})))
    window = typical_window(of_run)
    assert (window[0], window[-1], len(window)) == (55, 110, 10)
    assert typical_window(subject_of(federated_run(tmp_path / "few", rounds=3))) == [5, 10, 15]


def test_a_worker_that_does_not_take_part_has_an_empty_lane(tmp_path: Path) -> None:
    path = federated_run(tmp_path / "run", workers=6, rounds=20, participants=2)
    result = read_unscored(path)
    for number, row in enumerate(result.run.of(RoundRow), start=1):
        lines = timeline(result, 5 * number, 5 * number)
        assert lines.lanes[0].label == "server"
        assert [lane.label for lane in lines.lanes[1:]] == [f"worker {n}" for n in range(1, 7)]
        busy = [n for n, lane in enumerate(lines.lanes) if lane.spans and n]
        assert busy == list(row.took_part)
        for n in busy:
            assert [name for name, _, _ in lines.lanes[n].spans] == ["receive", "train", "send"]


def test_workers_that_take_part_come_first_where_lanes_are_too_many(tmp_path: Path) -> None:
    result = read_unscored(federated_run(tmp_path / "run", workers=60, rounds=5, participants=5))
    lines = timeline(result, 15, 15)
    took_part = result.run.of(RoundRow)[2].took_part
    assert max(took_part) > MOST_LANES
    assert len(lines.lanes) == MOST_LANES
    busy = [lane.label for lane in lines.lanes if lane.spans]
    assert busy == ["server", *(f"worker {n}" for n in took_part)]
    assert lines.num_left_out == 61 - MOST_LANES


def with_one_lost(path: Path) -> Path:
    federated_run(path, workers=4, rounds=8, participants=2)
    with (path / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"event": "lost", "iteration": 10, "workers": [3], "reason": "closed"}\n')
    return path


def test_a_worker_that_was_lost_has_no_lane_afterwards(tmp_path: Path) -> None:
    path = with_one_lost(tmp_path / "run")
    names = [lane.label for lane in timeline(read_unscored(path), 30, 40).lanes]
    assert names == ["server", "worker 1", "worker 2", "worker 4"]


def test_who_took_part_in_rounds_stands_in_a_table(tmp_path: Path) -> None:
    aborted = federated_run(tmp_path / "run", rounds=8, participants=2, aborted=frozenset({3}))
    of_run = subject_of(aborted)
    asked = workers.who_was_asked(of_run)
    assert asked is not None
    picture = by_run([(of_run, asked)])
    assert picture.seen == "8 rounds of 0 to 2 workers, 1 of them aborted."
    columns = list(zip(*picture.table.rows, strict=True))
    assert [sum(map(int, columns[place])) for place in (2, 3)] == [16, 14]
    without_rounds = subject_of(FakeRun(iterations=3).write(tmp_path / "other"))
    assert workers.who_was_asked(without_rounds) is None


def test_waiting_for_a_round_begins_with_it() -> None:
    server = Trace("server", {30: [span("send", 10.0, 1.0), span("wait", 11.0, 4.0)]})
    train, checkpoint = span("train", 11.0, 3.0, 1), span("checkpoint", 90.0, 1.0)
    early, late = span("receive", 1.0, 10.0), span("receive", 14.0, 60.0)
    in_round = [early, train, late, span("receive", 80.0, 2.0), checkpoint]
    host = Trace("host-1", {0: [span("receive", 0.0, 1.0)], 30: in_round})
    result = within_rounds(host, server).spans
    assert result[0] == []
    clipped = span("receive", 10.0, 1.0), span("receive", 14.0, 1.0)
    assert result[30] == [clipped[0], train, clipped[1], checkpoint]


def test_a_worker_counts_in_the_rounds_in_which_it_trained() -> None:
    spans = {
        5: [span("train", 0.0, 2.0, 1), span("train", 2.0, 4.0, 2)],
        10: [span("train", 9.0, 3.0, 2)],
    }
    assert worker_operations([Trace("host-1", spans)], {5, 10}) == ({"train": 3.0}, 2)


def test_bytes_are_counted_a_round(tmp_path: Path) -> None:
    path = federated_run(tmp_path / "run", rounds=10, participants=4, away=frozenset({2, 5}))
    assert server_rate(RecordedRun.read(path)) == (
        {"round": 4 * MODELS},
        {"update": (4 - 0.2) * MODELS},
    )


FAULTS: list[dict[str, Any]] = [
    {"event": "late", "iteration": 10, "workers": [1]},
    {"event": "back", "iteration": 20, "workers": [1]},
    {"event": "refused", "iteration": 25, "worker": 2, "reason": "NaN"},
]


def test_a_worker_that_is_late_or_refused_misses_whole_rounds(tmp_path: Path) -> None:
    path = federated_run(tmp_path / "run", workers=8, rounds=6, participants=4)
    with (path / "metrics.jsonl").open("a") as metrics:
        metrics.writelines(json.dumps(fault) + "\n" for fault in FAULTS)
    run = RecordedRun.read(path)
    first, second, *others = presences(run, 30)
    assert first.missed == [(5, 20)]
    assert second.refused == [(20, 25)]
    assert not any(worker.eventful for worker in others)
    for worker in (first, second, *others):
        parts = [worker.worker in row.took_part for row in run.of(RoundRow)]
        assert worker.counts["answered"] == sum(parts)


def test_the_page_of_a_federated_run_speaks_of_rounds(tmp_path: Path) -> None:
    path = federated_run(tmp_path / "run", rounds=30, participants=4)
    with (path / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"event": "lost", "iteration": 150, "workers": [3], "reason": "closed"}\n')
    page, missing = page_of(path)
    assert "fig-attendance" in page.drawn
    assert "Worker 3 was lost in the round that ends at iteration 150: closed" in page.text
    for words in (
        *("Round duration", "ten rounds", "one round", "Bytes a round", "mean time in a round"),
        *("Mean time of each operation in a round", "mean of 30 rounds"),
        *("outliers among 30 rounds", f"{4 * MODELS // 1000} KB sent"),
    ):
        assert words in page.text, words
    assert re.search(r"Rounds (11 to 20|21 to 30), ", page.text)
    for wrong in ("MD-GAN", "an iteration", "ten iterations", "figure 7.11"):
        assert wrong not in page.text, wrong
    assert not re.search(r"[{]\w*unit", page.text)
    assert not missing


@pytest.mark.slow
def test_a_page_of_both_kinds_draws_them_apart(tmp_path: Path) -> None:
    paths = [federated_run(tmp_path / "a", rounds=12), FakeRun(iterations=60).write(tmp_path / "b")]
    page, missing = page_of(*paths)
    assert not missing
    counted = {"timeline", "duration", "bytes"}
    assert page.drawn >= {f"fig-{name}{kind}" for name in counted for kind in ("", "-iterations")}
    for title in ("Round duration", "Iteration duration", "Timeline of runs in rounds"):
        assert title in page.text
    assert "figure 7.11" in page.text
