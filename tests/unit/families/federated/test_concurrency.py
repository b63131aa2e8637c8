"""The search for the number of slots stops where one more does not pay."""

from collections.abc import Callable
from math import inf, nan

import pytest
import torch

from mdgan.families.federated.concurrency import (
    ROUNDS_EACH,
    ConcurrencyEstimator,
    SlotCount,
    most_slots,
)

FIGURE_4 = {1: 1.0, 2: 1.7, 3: 2.2, 4: 2.5, 5: 2.6, 6: 2.5, 7: 2.3, 8: 2.0}
"""Work a second by slots, with the best at 5 as in figure 4 of the paper."""


def searched(most: int, rate: Callable[[int], float], start: int = 1) -> tuple[list[int], int]:
    """The slots of each round until the search is over, and what it chose."""
    search, used = ConcurrencyEstimator(most, start), list[int]()
    while not search.settled and len(used) < 200:
        used.append(search.num_slots)
        search.note(60.0, 60.0 / rate(search.num_slots))
    assert search.settled
    return used, search.num_slots


def test_the_search_stops_at_the_best_number() -> None:
    used = [n for n in range(1, 7) for _ in range(1 + ROUNDS_EACH)]
    assert searched(8, FIGURE_4.__getitem__) == (used, 5)


@pytest.mark.parametrize(("gain", "chosen"), [(1.019, 1), (1.021, 4)])
def test_one_slot_more_has_to_bring_two_per_cent(gain: float, chosen: int) -> None:
    assert searched(4, lambda n: gain**n)[1] == chosen


@pytest.mark.parametrize(("start", "chosen"), [(3, 5), (5, 5), (8, 8), (11, 8)])
def test_the_search_begins_where_it_is_told(start: int, chosen: int) -> None:
    assert searched(8, FIGURE_4.__getitem__, start)[1] == chosen


def test_the_first_round_of_a_number_and_a_single_slow_one_do_not_count() -> None:
    search = ConcurrencyEstimator(2)
    for seconds in (9.0, 1.0, 1.0, 50.0, 1000.0, 0.5, 0.5, 90.0):
        search.note(1.0, seconds)
    assert search.history == [(1, 1.0), (2, 2.0)]
    assert (search.settled, search.num_slots) == (True, 2)


def test_rounds_without_work_or_with_impossible_seconds_do_not_count() -> None:
    search = ConcurrencyEstimator(2)
    for work, seconds in ((0, 1), (1, 0), (1, -1), (1, nan), (nan, 1), (1, inf), (inf, 1)):
        search.note(work, seconds)
    assert (search.history, search.num_slots) == ([], 1)


@pytest.mark.parametrize(("free", "each", "slots"), [(1000, 300, 3), (1000, 301, 2), (5, 900, 1)])
def test_slots_are_as_many_as_fit_into_most_of_the_memory(free: int, each: int, slots: int) -> None:
    assert most_slots(free, each) == slots


def test_an_offer_names_the_processor_in_a_few_printable_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "core\x1b[2J α" + 99 * "x"
    monkeypatch.setattr("mdgan.families.federated.concurrency.processor_name", lambda: name)
    first, second = SlotCount(2, torch.device("cpu"), "").offer()
    assert first == second
    assert first.startswith("core?[2J ?x")
    assert first.isascii()
    assert first.count("x") < 64
