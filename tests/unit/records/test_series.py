import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.records.series import Series


def series_of(*values: float | None, every: int = 1) -> Series:
    series = Series()
    for number, value in enumerate(values, start=1):
        series.add(number * every, value)
    return series


def test_a_line_goes_from_the_lowest_to_the_highest() -> None:
    assert series_of(*range(8)).sparkline(8, 8) == "▁▂▃▄▅▆▇█"
    assert series_of(3.0, -1.0, 1.0).sparkline(3, 3) == "█▁▅"


def test_a_constant_is_a_level_line() -> None:
    assert series_of(2.5, 2.5, 2.5).sparkline(3, 3) == "▄▄▄"


def test_nothing_is_an_empty_line() -> None:
    assert Series().sparkline(4, 100) == "    "
    assert Series().sparkline(4, 0) == "    "


def test_the_axis_is_the_whole_training_so_far() -> None:
    assert series_of(1.0, 2.0, every=100).sparkline(8, 400) == " ▁▁█████"


def test_neighbours_that_share_a_place_are_averaged() -> None:
    assert series_of(0.0, 2.0, 1.0, 3.0, 7.0, 9.0).sparkline(3, 6) == "▁▂█"


def test_what_is_not_finite_is_marked() -> None:
    series = series_of(1.0, None, math.nan, 2.0, math.inf)
    assert series.sparkline(5, 5) == "▁××█×"
    assert series.last is None
    assert series.finite() == [1.0, 2.0]
    assert series_of(None, None).sparkline(2, 2) == "××"


def test_a_logarithm_shows_small_differences_beside_large_ones() -> None:
    series = series_of(400.0, 40.0, 4.0)
    assert series.sparkline(3, 3) == "█▂▁"
    assert series.sparkline(3, 3, logarithmic=True) in ("█▄▁", "█▅▁")
    assert series_of(0.0, 1.0).sparkline(2, 2, logarithmic=True) == "▁█"


@pytest.mark.parametrize("width", [1, 36])
def test_a_long_run_keeps_its_course(width: int) -> None:
    series = series_of(*(float(number) for number in range(100_000)))
    assert series.last == 99_999
    line = series.sparkline(width, 100_000)
    assert list(line) == sorted(line)
    assert len(line) == width
    assert (line[0], line[-1]) == ("▁", "█") if width > 1 else line == "▄"


VALUES = st.none() | st.floats(allow_subnormal=False, min_value=-1e300, max_value=1e300)


@given(st.lists(VALUES, max_size=200), st.integers(1, 50), st.integers(0, 300), st.booleans())
def test_any_numbers_give_a_line_of_the_right_length(
    values: list[float | None], width: int, until: int, logarithmic: bool
) -> None:
    line = series_of(*values).sparkline(width, until, logarithmic=logarithmic)
    assert len(line) == width
    assert set(line) <= set(" ×▁▂▃▄▅▆▇█")
