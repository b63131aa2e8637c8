import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.observe.live_view import sparkline

Points = list[tuple[int, float | None]]


def every(step: int, *values: float | None) -> Points:
    return [(number * step, value) for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("points", "width", "until", "line"),
    [
        (every(1, *range(8)), 8, 8, "▁▂▃▄▅▆▇█"),
        (every(1, 3.0, -1.0, 1.0), 3, 3, "█▁▅"),
        (every(1, 2.5, 2.5, 2.5), 3, 3, "▄▄▄"),
        ([], 4, 100, "    "),
        ([], 4, 0, "    "),
        (every(100, 1.0, 2.0), 8, 400, " ▁▁█████"),
        (every(1, 0.0, 2.0, 1.0, 3.0, 7.0, 9.0), 3, 6, "▁▂█"),
        (every(1, 1.0, None, math.nan, 2.0, math.inf), 5, 5, "▁××█×"),
    ],
)
def test_a_line_shows_means_of_stretches(points: Points, width: int, until: int, line: str) -> None:
    assert sparkline(points, width, until) == line


def test_the_logarithm_is_drawn_if_there_is_one() -> None:
    assert sparkline(every(1, 1.0, 10.0, 100.0), 3, 3, logarithmic=True) == "▁▅█"
    assert sparkline(every(1, 0.0, 50.0, 100.0), 3, 3, logarithmic=True) == "▁▅█"


@given(st.lists(st.floats() | st.none()), st.integers(1, 50), st.integers(0, 1000))
def test_any_series_fits_into_any_width(values: list[float | None], width: int, until: int) -> None:
    assert len(sparkline(every(1, *values), width, until)) == width
