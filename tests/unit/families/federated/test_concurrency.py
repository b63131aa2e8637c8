"""The search for the number of slots stops where one more does not pay."""

from collections.abc import Callable
from math import inf, nan
from random import Random

import pytest

from mdgan.families.federated.concurrency import Climb, most_slots

FIGURE_4 = {1: 1.0, 2: 1.7, 3: 2.2, 4: 2.5, 5: 2.6, 6: 2.5, 7: 2.3, 8: 2.0}
"""Work a second by slots, with the best at 5 as in figure 4 of the paper."""


def search(climb: Climb, rate: Callable[[int], float], rounds: int = 200) -> list[int]:
    """Runs rounds until the search is over; the slots of each round."""
    used: list[int] = []
    while not climb.settled and len(used) < rounds:
        used.append(climb.num_slots)
        climb.note(60.0, 60.0 / rate(climb.num_slots))
    return used


def test_the_search_stops_at_the_best_number() -> None:
    climb = Climb(most=8, rounds_each=2)
    assert search(climb, FIGURE_4.__getitem__) == [n for n in range(1, 7) for _ in range(3)]
    assert climb.num_slots == 5
    assert dict(climb.history) == pytest.approx({n: FIGURE_4[n] for n in range(1, 7)})


@pytest.mark.parametrize(("gain", "chosen"), [(1.019, 1), (1.021, 4)])
def test_one_slot_more_has_to_bring_two_per_cent(gain: float, chosen: int) -> None:
    climb = Climb(most=4, rounds_each=1)
    search(climb, lambda n: gain**n)
    assert climb.num_slots == chosen


def test_a_machine_never_uses_more_than_it_can_hold() -> None:
    climb = Climb(most=3, rounds_each=1)
    assert max(search(climb, float)) == 3
    assert climb.num_slots == 3
    climb.note(1.0, 1.0)
    assert climb.num_slots == 3


@pytest.mark.parametrize(("start", "chosen"), [(3, 5), (5, 5), (8, 8), (11, 8)])
def test_the_search_begins_where_it_is_told(start: int, chosen: int) -> None:
    climb = Climb(most=8, rounds_each=1, start=start)
    search(climb, FIGURE_4.__getitem__)
    assert (climb.settled, climb.num_slots) == (True, chosen)


def test_the_first_round_of_a_number_does_not_count() -> None:
    climb = Climb(most=2, rounds_each=1)
    for seconds in (1.0, 1.0, 1000.0, 0.5):  # the second slot starts slowly
        climb.note(1.0, seconds)
    assert climb.history == [(1, 1.0), (2, 2.0)]
    assert (climb.settled, climb.num_slots) == (True, 2)


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_single_slow_rounds_do_not_lead_astray(seed: int) -> None:
    random = Random(seed)

    def rate(slots: int) -> float:
        slow = 0.2 if random.random() < 0.1 else 1.0
        return FIGURE_4[slots] * slow * random.uniform(0.99, 1.01)

    climb = Climb(most=8, rounds_each=7)
    search(climb, rate)
    assert climb.num_slots in (4, 5)


def test_rounds_without_work_or_with_impossible_seconds_do_not_count() -> None:
    climb = Climb(most=2, rounds_each=1)
    for work, seconds in ((0, 1), (1, 0), (1, -1), (1, nan), (nan, 1), (1, inf), (inf, 1)):
        climb.note(work, seconds)
    climb.note(4.0, 1.0)
    assert (climb.history, climb.num_slots) == ([], 1)


@pytest.mark.parametrize(("free", "each", "slots"), [(1000, 300, 3), (1000, 301, 2), (5, 900, 1)])
def test_slots_are_as_many_as_fit_into_most_of_the_memory(free: int, each: int, slots: int) -> None:
    assert most_slots(free, each) == slots
