import json
from pathlib import Path

import pytest

from mdgan.report.figures.timeline import Lane, one, ten, timeline, typical_window
from mdgan.report.numbers.subject import Subject
from tests.unit.observe.fake_run import FakeRun
from tests.unit.report.parsed_page import subject_of


def subject(folder: Path, fake: FakeRun) -> Subject:
    return subject_of(fake.write(folder / "run"))


def test_ten_iterations_after_the_first_ten_that_scoring_did_not_hold_up(tmp_path: Path) -> None:
    window = typical_window(subject(tmp_path / "a", FakeRun(iterations=100, score_interval=0)))
    assert window[0] > 10
    assert window == list(range(window[0], window[0] + 10))
    assert window[0] % 10 == 1
    scored_often = FakeRun(iterations=40, score_interval=20)
    assert typical_window(subject(tmp_path / "b", scored_often)) == list(range(21, 31))
    assert typical_window(subject(tmp_path / "c", FakeRun(iterations=4))) == [1, 2, 3, 4]


def test_slow_iterations_are_not_typical(tmp_path: Path) -> None:
    slow = frozenset({15, 35})
    found = subject(tmp_path, FakeRun(iterations=50, slow=slow, score_interval=0))
    assert typical_window(found)[0] in (21, 41)


def test_workers_of_long_runs_are_shown_where_they_were_recorded(tmp_path: Path) -> None:
    fake = FakeRun(workers=20, iterations=60_000, done=300, score_interval=0, sample_interval=0)
    found = subject(tmp_path, fake)
    spans = found.run.traces["host-1"].spans
    assert 11 not in spans
    assert set(typical_window(found)) <= spans.keys()


def test_every_role_is_a_lane(tmp_path: Path) -> None:
    found = subject(tmp_path, FakeRun(workers=3, iterations=30))
    lines = timeline(found, 11, 20)
    assert [lane.label for lane in lines.lanes] == ["server", "worker 1", "worker 2", "worker 3"]
    assert lines.seconds == pytest.approx(sum(found.durations[i] for i in range(11, 21)), abs=0.002)
    for lane in lines.lanes:
        assert all(
            0 <= start <= start + took <= lines.seconds + 1e-9 for _, start, took in lane.spans
        )


def test_hosts_of_several_workers_have_lanes_of_their_own(tmp_path: Path) -> None:
    found = subject(tmp_path, FakeRun(workers=4, workers_per_host=2, iterations=30))
    names = [lane.label for lane in timeline(found, 11, 11).lanes]
    first, second = ["host 1–2", "worker 1", "worker 2"], ["host 3–4", "worker 3", "worker 4"]
    assert names == ["server", *first, *second]
    alone = subject(tmp_path / "alone", FakeRun(workers=0, iterations=12))
    assert [lane.label for lane in timeline(alone, 11, 12).lanes] == ["standalone"]


def test_busy_time_counts_overlaps_once() -> None:
    lane = Lane("x", [("a", 0.0, 2.0), ("b", 1.0, 2.0), ("c", 5.0, 1.0)])
    assert lane.busy(8.0) == 0.5
    assert Lane("x", []).busy(8.0) == 0.0


def test_a_run_without_traces_has_no_window(tmp_path: Path) -> None:
    path = FakeRun(iterations=12).write(tmp_path / "run")
    for file in (path / "trace").iterdir():
        file.unlink()
    found = subject_of(path)
    assert typical_window(found) == []
    assert ten(found) is None
    assert one(found) is None


def scored(folder: Path, fake: FakeRun, first: int, last: int) -> Subject:
    """A run whose scorer was at work from the start of one iteration to that of another."""
    found = subject(folder, fake)
    assert found.main_trace is not None
    begin, end = (found.main_trace.spans[i][0].start for i in (first, last))
    span = ["evaluate", 0, 0, round(1e6 * (end - begin)), 0]
    row = {"iteration": first, "start": begin, "spans": [span]}
    (folder / "run" / "trace" / "scorer.jsonl").write_text(json.dumps(row) + "\n")
    return subject_of(folder / "run")


def test_what_scoring_costs(tmp_path: Path) -> None:
    slow = frozenset(range(31, 35))
    fake = FakeRun(workers=2, iterations=60, score_interval=0, slow=slow)
    found = scored(tmp_path, fake, 35, 45)
    beside, alone = found.durations_while_scoring()
    assert len(beside) + len(alone) == len(found.ordinary)
    assert beside == [found.durations[i] for i in range(35, 45)]


def test_hosts_that_were_lost_before_or_joined_later_have_no_lane(tmp_path: Path) -> None:
    found = subject(tmp_path, FakeRun(workers=4, iterations=60, lost={2: 15}))
    names = {
        first: [lane.label for lane in timeline(found, first, first + 9).lanes] for first in (1, 31)
    }
    assert names[1] == ["server", "worker 1", "worker 2", "worker 3", "worker 4"]
    assert names[31] == ["server", "worker 1", "worker 3", "worker 4"]


def test_the_window_is_one_that_most_hosts_recorded(tmp_path: Path) -> None:
    found = subject(tmp_path, FakeRun(workers=3, iterations=60, lost={1: 5, 2: 35}))
    trace = found.run.traces["host-1"]
    trace.spans.clear()
    trace.spans.update(
        {i: spans for i, spans in found.run.traces["host-3"].spans.items() if i > 50}
    )
    window = typical_window(found)
    assert window[-1] <= 34 or window[0] > 50
