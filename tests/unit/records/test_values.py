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
    ("value", "expected"),
    [
        (None, "–"),
        (0.0, "0"),
        (3.0, "3"),
        (2.514, "2.51"),
        (1797, "1,797"),
        (0.00012345, "0.000123"),
    ],
)
def test_numbers_have_three_digits(value: float | None, expected: str) -> None:
    assert said(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (0.0085, "0.01"),
        (1.2, "1.20"),
        (16.666, "16.7"),
        (163.7, "164"),
        (2e5, "200,000"),
    ],
)
def test_measurements_have_two_decimals_at_most(value: float, expected: str) -> None:
    assert measured(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (2e-6, "2.00 µs"),
        (0.0123, "12.3 ms"),
        (1.0, "1.00 s"),
        (90.0, "90.0 s"),
        (600.0, "10.0 min"),
        (86_400.0, "24.0 h"),
    ],
)
def test_times_have_the_unit_that_reads_best(seconds: float, expected: str) -> None:
    assert said_seconds(seconds) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(12, "12 bytes"), (20_400, "20.4 KB"), (1.8e6, "1.80 MB"), (5e9, "5.00 GB")],
)
def test_sizes_have_the_unit_that_reads_best(size: float, expected: str) -> None:
    assert said_bytes(size) == expected


def test_the_first_and_the_last_are_always_chosen() -> None:
    assert chosen_evenly(range(5), 9) == [0, 1, 2, 3, 4]
    assert chosen_evenly(range(101), 5) == [0, 25, 50, 75, 100]


def test_long_lists_are_shortened() -> None:
    assert said_list([1, 2, 3], 3) == "1, 2, 3"
    assert said_list([1, 2, 3, 4], 3) == "1, 2, 3 … (4 in all)"


def test_only_finite_numbers_are_numbers() -> None:
    assert [number(value) for value in (1, 2.5, True, "3", None, float("nan"), float("inf"))] == [
        1.0,
        2.5,
        *[None] * 5,
    ]
    assert number_in({"a": {"b": 2}}, "a", "b") == 2.0
    assert number_in({"a": 2}, "a", "b") is None


def test_scores_that_are_left_out_for_the_same_reason_share_a_line() -> None:
    left_out = {"kid": "no data", "kid_std": "no data", "class_kl": "infinite", "recall": "no data"}
    assert said_left_out(left_out, {"kid": "KID"}) == [
        "KID, recall left out: no data",
        "class_kl left out: infinite",
    ]
