from math import inf

import pytest

from mdgan.records.recorded_run import RecordedSpan, Trace
from mdgan.report.numbers.durations import (
    WORKER_ORDER,
    envelope,
    in_order,
    iteration_durations,
    outlier_threshold,
    role_operations,
    worker_operations,
)


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
    found = worker_operations([Trace("host-1", spans)], {1, 2, 3})
    assert found == ({"receive": 4.0, "feedback": 2.0}, 2)


def test_hosts_count_as_long_as_they_record() -> None:
    long = Trace("host-1", {i: [did("send", 0, 1.0)] for i in (1, 2, 3)})
    short = Trace("host-2", {1: [did("send", 0, 5.0)]})
    assert worker_operations([long, short], {1, 2, 3}) == ({"send": 2.0}, 3)
    assert worker_operations([], {1}) == ({}, 0)


def test_unknown_operations_come_last() -> None:
    found = in_order({"zip", "swap", "receive", "encrypt"}, WORKER_ORDER)
    assert found == ["receive", "swap", "encrypt", "zip"]
