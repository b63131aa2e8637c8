from math import inf

import pytest

from mdgan.records.recorded_run import RecordedSpan
from mdgan.report.numbers.durations import envelope, iteration_durations, outlier_threshold


def span(name: str, start: float, seconds: float) -> RecordedSpan:
    return RecordedSpan(name, 0, start, seconds, 0)


def test_an_iteration_lasts_from_the_first_start_to_the_last_end() -> None:
    spans = {7: [span("generate", 10.0, 0.5), span("send", 10.75, 0.25), span("step", 11.5, 0.25)]}
    assert iteration_durations(spans) == {7: 1.75}


def test_overlapping_operations_count_once() -> None:
    assert iteration_durations({1: [span("wait", 1.0, 3.0), span("step", 2.0, 0.5)]}) == {1: 3.0}


@pytest.mark.parametrize("name", ["evaluate", "checkpoint"])
@pytest.mark.parametrize("start", [0.0, 3.0, 9.0])
def test_scoring_and_checkpoints_do_not_count(name: str, start: float) -> None:
    spans = [span("generate", 1.0, 1.0), span("step", 7.0, 1.0), span(name, start, 1.0)]
    expected = 6.0 if start == 3.0 else 7.0
    assert iteration_durations({1: spans}) == {1: expected}


def test_scoring_that_begins_as_the_step_ends_takes_nothing_off() -> None:
    spans = [span("step", 1.0, 1.0), span("evaluate", 2.0 - 1e-9, 5.0)]
    assert iteration_durations({1: spans})[1] == pytest.approx(1.0)


def test_what_was_cut_off_before_its_step_does_not_count() -> None:
    spans = {1: [span("step", 0.0, 1.0)], 2: [span("generate", 1.0, 1.0)], 3: []}
    assert iteration_durations(spans) == {1: 1.0}


def test_what_comes_before_training_does_not_count() -> None:
    assert iteration_durations({0: [span("step", 0.0, 1.0)]}) == {}


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
