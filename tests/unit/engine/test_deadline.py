from math import inf
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.engine.server.collecting import Deadline
from mdgan.engine.settings import DeadlineRule


def test_without_a_limit_the_server_waits_for_every_worker() -> None:
    deadline = Deadline(None, 0.1)
    deadline.learn([0.1] * 50)
    assert deadline.limit_seconds() == inf
    assert [deadline.least(n) for n in (0, 1, 7)] == [0, 1, 7]


def test_seconds_are_seconds() -> None:
    deadline = Deadline(DeadlineRule(1.5, 0.0), 0.5)
    assert deadline.limit_seconds() == 1.5
    deadline.learn([100.0])
    assert deadline.limit_seconds() == 1.5


def test_a_factor_knows_nothing_at_first() -> None:
    assert Deadline(DeadlineRule(0.0, 3.0), 0.5).limit_seconds() == inf


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=60), st.floats(0.5, 9))
def test_a_factor_is_of_the_median(times: list[float], factor: float) -> None:
    deadline = Deadline(DeadlineRule(0.0, factor), 0.5)
    for answer_seconds in times:
        deadline.learn([answer_seconds])
    assert deadline.limit_seconds() == pytest.approx(factor * median(times))


def test_what_is_long_past_is_forgotten() -> None:
    deadline = Deadline(DeadlineRule(0.0, 2.0), 0.5)
    deadline.learn([100.0] * 1000)
    deadline.learn([1.0] * 1000)
    assert deadline.limit_seconds() == 2.0


@pytest.mark.parametrize(
    ("quorum", "num_live", "least"),
    [
        (0.5, 10, 5),
        (0.5, 9, 5),
        (0.5, 1, 1),
        (0.01, 10, 1),
        (1.0, 10, 10),
        (0.75, 4, 3),
        (0.76, 4, 4),
        (0.5, 0, 0),
    ],
)
def test_the_quorum_is_of_those_who_live(quorum: float, num_live: int, least: int) -> None:
    assert Deadline(DeadlineRule(1.0, 0.0), quorum).least(num_live) == least
    assert Deadline(DeadlineRule(0.0, 2.0), quorum).least(num_live) == least


@given(st.floats(0, 1, exclude_min=True), st.integers(1, 2000))
def test_a_quorum_can_always_be_reached_and_is_at_least_one_worker(
    quorum: float, num_live: int
) -> None:
    assert 1 <= Deadline(DeadlineRule(1.0, 0.0), quorum).least(num_live) <= num_live
