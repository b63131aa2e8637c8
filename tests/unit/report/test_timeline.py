"""How long iterations last, and which of them the timeline shows."""

import json
from math import inf
from pathlib import Path

import pytest

from mdgan.records.recorded_run import RecordedSpan, Trace
from mdgan.report.figures.timeline import Lane, one, ten, timeline, typical_window
from mdgan.report.numbers.durations import (
    WORKER_ORDER,
    envelope,
    in_order,
    iteration_durations,
    outlier_threshold,
    role_operations,
    worker_operations,
)
from mdgan.report.numbers.subject import Subject
from tests.unit.observe.fake_run import FakeRun
from tests.unit.report.parsed_page import subject_of


def span(name: str, start: float, seconds: float) -> RecordedSpan:
    return RecordedSpan(name, 0, start, seconds, 0)


@pytest.mark.parametrize(
    ("spans", "durations"),
    [
        (
            {7: [span("generate", 10.0, 0.5), span("send", 10.75, 0.25), span("step", 11.5, 0.25)]},
            {7: 1.75},
        ),
        ({1: [span("wait", 1.0, 3.0), span("step", 2.0, 0.5)]}, {1: 3.0}),
        ({1: [span("step", 1.0, 1.0), span("evaluate", 2.0 - 1e-9, 5.0)]}, {1: 1.0}),
        ({1: [span("step", 0.0, 1.0)], 2: [span("generate", 1.0, 1.0)], 3: []}, {1: 1.0}),
        ({0: [span("step", 0.0, 1.0)]}, {}),
    ],
    ids=["first to last", "overlapping", "scoring at its end", "cut off", "before training"],
)
def test_how_long_iterations_last(
    spans: dict[int, list[RecordedSpan]], durations: dict[int, float]
) -> None:
    assert iteration_durations(spans) == pytest.approx(durations)


@pytest.mark.parametrize("name", ["evaluate", "checkpoint"])
@pytest.mark.parametrize("start", [0.0, 3.0, 9.0])
def test_scoring_and_checkpoints_do_not_count(name: str, start: float) -> None:
    spans = [span("generate", 1.0, 1.0), span("step", 7.0, 1.0), span(name, start, 1.0)]
    expected = 6.0 if start == 3.0 else 7.0
    assert iteration_durations({1: spans}) == {1: expected}


def test_the_threshold_is_five_robust_deviations_above_the_median() -> None:
    # The median is 3, the deviations from it 2 1 0 0 1 2 97, their median 1.
    values = [1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 100.0]
    assert outlier_threshold(values) == 3.0 + 5 * 1.4826 * 1.0
    assert [value for value in values if value > outlier_threshold(values)] == [100.0]


def test_equal_durations_have_no_outliers() -> None:
    assert outlier_threshold([2.0] * 9) == 2.0
    assert outlier_threshold([]) == inf


def test_a_short_series_is_kept_whole() -> None:
    thin = envelope({1: 3.0, 2: 1.0, 5: 2.0}, 3)
    assert thin.x == [1, 2, 5]
    assert thin.low == thin.middle == thin.high == [3.0, 1.0, 2.0]
    assert envelope({}, 3).x == []


def test_a_long_series_keeps_how_far_it_goes() -> None:
    series = {i: float(i % 7) for i in range(1, 30_001)}
    series[12_345] = 1000.0
    thin = envelope(series, 400)
    assert len(thin.x) == 400
    assert max(thin.high) == 1000.0
    assert thin.middle == [3.0] * 400
    assert thin.x[0] == 38.0
    assert thin.x == sorted(thin.x)


def did(name: str, worker: int, seconds: float) -> RecordedSpan:
    return RecordedSpan(name, worker, 0.0, seconds, 0)


def test_a_rare_operation_is_spread_over_all_iterations() -> None:
    spans = {
        1: [did("send", 0, 1.0), did("send", 0, 0.5), did("swap", 0, 4.0)],
        2: [did("send", 0, 2.5)],
        3: [did("send", 0, 100.0)],
    }
    assert role_operations(spans, {1, 2}) == {"send": 2.0, "swap": 2.0}
    assert role_operations(spans, {9}) == {}


def test_a_host_of_two_workers_is_averaged_over_both() -> None:
    spans = {
        1: [did("receive", 0, 3.0), did("feedback", 1, 1.0), did("feedback", 2, 2.0)],
        2: [did("receive", 0, 5.0), did("feedback", 1, 1.0), did("feedback", 2, 4.0)],
    }
    result = worker_operations([Trace("host-1", spans)], {1, 2, 3})
    assert result == ({"receive": 4.0, "feedback": 2.0}, 2)


def test_hosts_count_as_long_as_they_record() -> None:
    long = Trace("host-1", {i: [did("send", 0, 1.0)] for i in (1, 2, 3)})
    short = Trace("host-2", {1: [did("send", 0, 5.0)]})
    assert worker_operations([long, short], {1, 2, 3}) == ({"send": 2.0}, 3)
    assert worker_operations([], {1}) == ({}, 0)


def test_unknown_operations_come_last() -> None:
    result = in_order({"zip", "swap", "receive", "encrypt"}, WORKER_ORDER)
    assert result == ["receive", "swap", "encrypt", "zip"]


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
    of_run = subject(tmp_path, FakeRun(iterations=50, slow=slow, score_interval=0))
    assert typical_window(of_run)[0] in (21, 41)


def test_workers_of_long_runs_are_shown_where_they_were_recorded(tmp_path: Path) -> None:
    fake = FakeRun(workers=20, iterations=60_000, done=300, score_interval=0, sample_interval=0)
    of_run = subject(tmp_path, fake)
    spans = of_run.run.traces["host-1"].spans
    assert 11 not in spans
    assert set(typical_window(of_run)) <= spans.keys()


def test_every_role_is_a_lane(tmp_path: Path) -> None:
    of_run = subject(tmp_path, FakeRun(workers=3, iterations=30))
    lines = timeline(of_run, 11, 20)
    assert [lane.label for lane in lines.lanes] == ["server", "worker 1", "worker 2", "worker 3"]
    assert lines.seconds == pytest.approx(
        sum(of_run.durations[i] for i in range(11, 21)), abs=0.002
    )
    for lane in lines.lanes:
        assert all(
            0 <= start <= start + took <= lines.seconds + 1e-9 for _, start, took in lane.spans
        )


def test_hosts_of_several_workers_have_lanes_of_their_own(tmp_path: Path) -> None:
    of_run = subject(tmp_path, FakeRun(workers=4, workers_per_host=2, iterations=30))
    names = [lane.label for lane in timeline(of_run, 11, 11).lanes]
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
    of_run = subject_of(path)
    assert typical_window(of_run) == []
    assert ten(of_run) is None
    assert one(of_run) is None


def scored(folder: Path, fake: FakeRun, first: int, last: int) -> Subject:
    """A run whose scorer was at work from the start of one iteration to that of another."""
    of_run = subject(folder, fake)
    assert of_run.main_trace is not None
    begin, end = (of_run.main_trace.spans[i][0].start for i in (first, last))
    span = ["evaluate", 0, 0, round(1e6 * (end - begin)), 0]
    row = {"iteration": first, "start": begin, "spans": [span]}
    (folder / "run" / "trace" / "scorer.jsonl").write_text(json.dumps(row) + "\n")
    return subject_of(folder / "run")


def test_what_scoring_costs(tmp_path: Path) -> None:
    slow = frozenset(range(31, 35))
    fake = FakeRun(workers=2, iterations=60, score_interval=0, slow=slow)
    of_run = scored(tmp_path, fake, 35, 45)
    beside, alone = of_run.durations_while_scoring()
    assert len(beside) + len(alone) == len(of_run.ordinary)
    assert beside == [of_run.durations[i] for i in range(35, 45)]


def test_hosts_that_were_lost_before_or_joined_later_have_no_lane(tmp_path: Path) -> None:
    of_run = subject(tmp_path, FakeRun(workers=4, iterations=60, lost={2: 15}))
    names = {
        first: [lane.label for lane in timeline(of_run, first, first + 9).lanes]
        for first in (1, 31)
    }
    assert names[1] == ["server", "worker 1", "worker 2", "worker 3", "worker 4"]
    assert names[31] == ["server", "worker 1", "worker 3", "worker 4"]


def test_hosts_that_told_no_times_have_no_lane(tmp_path: Path) -> None:
    of_run = subject(tmp_path, FakeRun(workers=2, iterations=30))
    of_run.run.traces["host-2"].spans.clear()  # as under differential privacy
    assert [lane.label for lane in timeline(of_run, 11, 20).lanes] == ["server", "worker 1"]


def test_the_window_is_one_that_most_hosts_recorded(tmp_path: Path) -> None:
    of_run = subject(tmp_path, FakeRun(workers=3, iterations=60, lost={1: 5, 2: 35}))
    trace = of_run.run.traces["host-1"]
    trace.spans.clear()
    trace.spans.update(
        {i: spans for i, spans in of_run.run.traces["host-3"].spans.items() if i > 50}
    )
    window = typical_window(of_run)
    assert window[-1] <= 34 or window[0] > 50
