"""Every client trains in one slot, and greedy placement is as close to the best as it must be."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.families.federated.placement import Slot, Strategy, place

quick = settings(deadline=None, max_examples=60)
STRATEGIES: tuple[Strategy, ...] = ("rr", "bb", "lb")
slot_lists = st.lists(
    st.builds(Slot, st.integers(1, 4), st.integers(0, 3), st.sampled_from(["fast", "slow", "odd"])),
    min_size=1,
    max_size=9,
    unique=True,
)
sizes = st.lists(st.integers(1, 50), max_size=30)
SPEEDS = {"fast": 4.0, "slow": 1.0, "odd": 2.0}


def seconds(kind: str, x: int) -> float:
    return x / SPEEDS[kind]


def equal_slots(number: int) -> list[Slot]:
    return [Slot(1, n, "fast") for n in range(number)]


@quick
@given(st.sampled_from(STRATEGIES), sizes, slot_lists, st.randoms(use_true_random=False))
def test_every_client_is_placed_once_and_the_order_of_slots_does_not_matter(
    strategy: Strategy, batches: list[int], slots: list[Slot], random: Random
) -> None:
    clients = [7 * n + 3 for n in range(len(batches))]
    random.shuffle(clients)
    num_batches = dict(zip(clients, batches, strict=True))
    placed = place(strategy, clients, num_batches, slots, seconds)
    assert set(placed) == set(slots)
    assert sorted(n for trained in placed.values() for n in trained) == sorted(clients)
    random.shuffle(slots)
    assert place(strategy, clients, num_batches, slots, seconds) == placed


@quick
@given(st.integers(0, 40), slot_lists)
def test_round_robin_gives_equally_many_in_the_order_drawn(number: int, slots: list[Slot]) -> None:
    clients = list(range(number, 0, -1))
    placed = place("rr", clients, {}, slots, seconds)
    lists = [placed[slot] for slot in sorted(slots)]
    assert [n for trained in lists for n in trained] == clients
    lengths = [len(trained) for trained in lists]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@quick
@given(
    st.sampled_from(["bb", "lb"]),
    st.lists(st.integers(1, 20), min_size=1, max_size=7),
    st.integers(1, 3),
)
def test_on_equal_slots_greedy_placement_keeps_the_bound_of_graham(
    strategy: Strategy, batches: list[int], num_slots: int
) -> None:
    num_batches = dict(enumerate(batches))
    placed = place(strategy, list(num_batches), num_batches, equal_slots(num_slots), seconds)
    makespan = max(sum(num_batches[n] for n in trained) for trained in placed.values())
    best = min(
        max(
            sum(x for x, at in zip(batches, spread, strict=True) if at == slot)
            for slot in range(num_slots)
        )
        for spread in product(range(num_slots), repeat=len(batches))
    )
    assert makespan <= (4 / 3 - 1 / (3 * num_slots)) * best + 1e-9


def test_batches_are_balanced_by_their_number_alone() -> None:
    slots = [Slot(1, 0, "slow"), Slot(2, 0, "fast")]
    placed = place("bb", [1, 2, 3], {1: 5, 2: 9, 3: 4}, slots, seconds)
    assert placed == {slots[0]: [2], slots[1]: [1, 3]}


@quick
@given(sizes, slot_lists)
def test_learnt_seconds_give_each_client_to_the_slot_that_is_done_with_it_first(
    batches: list[int], slots: list[Slot]
) -> None:
    num_batches = dict(enumerate(batches))
    placed = place("lb", list(num_batches), num_batches, slots, seconds)
    load = dict.fromkeys(slots, 0.0)
    for client in sorted(num_batches, key=num_batches.__getitem__, reverse=True):
        (at,) = (slot for slot, trained in placed.items() if client in trained)
        done = {slot: load[slot] + seconds(slot.kind, num_batches[client]) for slot in slots}
        assert done[at] == min(done.values())
        load[at] = done[at]


def test_a_slow_slot_without_work_gets_no_client_that_takes_it_too_long() -> None:
    slots = [Slot(1, 0, "fast"), Slot(2, 0, "slow")]
    placed = place("lb", [1, 2, 3], {1: 10, 2: 10, 3: 10}, slots, seconds)
    assert placed == {slots[0]: [1, 2, 3], slots[1]: []}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predictions_are_asked_for_once_however_many_clients_there_are(strategy: Strategy) -> None:
    asked: list[tuple[str, int]] = []

    def predict(kind: str, x: int) -> float:
        asked.append((kind, x))
        return seconds(kind, x)

    slots = [Slot(host, n, "slow" if host % 2 else "fast") for host in range(8) for n in range(8)]
    placed = place(strategy, range(1000), {n: 1 + n % 10 for n in range(1000)}, slots, predict)
    assert sum(map(len, placed.values())) == 1000
    assert sorted(asked) == (
        sorted(product(("fast", "slow"), range(1, 11))) if strategy == "lb" else []
    )
