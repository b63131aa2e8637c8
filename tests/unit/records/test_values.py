from collections.abc import Callable
from typing import Any

import pytest

from mdgan.records.values import (
    chosen_evenly,
    measured,
    number,
    number_in,
    said,
    said_bytes,
    said_left_out,
    said_list,
    said_seconds,
)


@pytest.mark.parametrize(
    ("say", "value", "expected"),
    [
        *((said, None, "–"), (said, 0.0, "0"), (said, 3.0, "3"), (said, 2.514, "2.51")),
        *((said, 1797, "1,797"), (said, 0.00012345, "0.000123")),
        *((measured, 0.0, "0"), (measured, 0.0085, "0.01"), (measured, 1.2, "1.20")),
        *((measured, 16.666, "16.7"), (measured, 163.7, "164"), (measured, 2e5, "200,000")),
        *((said_seconds, 2e-6, "2.00 µs"), (said_seconds, 0.0123, "12.3 ms")),
        *((said_seconds, 1.0, "1.00 s"), (said_seconds, 90.0, "90.0 s")),
        *((said_seconds, 600.0, "10.0 min"), (said_seconds, 86_400.0, "24.0 h")),
        *((said_bytes, 12, "12 bytes"), (said_bytes, 20_400, "20.4 KB")),
        *((said_bytes, 1.8e6, "1.80 MB"), (said_bytes, 5e9, "5.00 GB")),
    ],
)
def test_numbers_as_people_read_them(say: Callable[[Any], str], value: Any, expected: str) -> None:
    assert say(value) == expected


def test_the_first_and_the_last_are_always_chosen() -> None:
    assert chosen_evenly(range(5), 9) == [0, 1, 2, 3, 4]
    assert chosen_evenly(range(101), 5) == [0, 25, 50, 75, 100]


def test_long_lists_are_shortened() -> None:
    assert said_list([1, 2, 3], 3) == "1, 2, 3"
    assert said_list([1, 2, 3, 4], 3) == "1, 2, 3 … (4 in all)"


def test_only_finite_numbers_are_numbers() -> None:
    others = (True, "3", None, float("nan"), float("inf"))
    assert [number(value) for value in (1, 2.5, *others)] == [1.0, 2.5, *[None] * 5]
    assert number_in({"a": {"b": 2}}, "a") is None
    assert number_in({"a": 2}, "a") == 2.0
    assert number_in({"a": 2}, "b") is None


def test_scores_that_are_left_out_for_the_same_reason_share_a_line() -> None:
    left_out = {"kid": "no data", "kid_std": "no data", "class_kl": "infinite", "recall": "no data"}
    assert said_left_out(left_out, {"kid": "KID"}) == [
        "KID, recall left out: no data",
        "class_kl left out: infinite",
    ]
