"""Every client trains in one slot; curves fit as scipy's, and are safe from what hosts make up."""

from itertools import product
from math import inf, isfinite, log, nan
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.families.federated.placement import (
    Slot,
    Strategy,
    TrainingTimes,
    curve_at,
    fit_curve,
    place,
)
from tests.marks import examples

quick = settings(deadline=None, max_examples=examples(24))
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
@given(st.sampled_from(["bb", "lb"]), sizes, slot_lists)
def test_each_client_goes_to_the_slot_that_is_done_with_it_first(
    strategy: Strategy, batches: list[int], slots: list[Slot]
) -> None:
    """By batches all slots are equally fast."""
    num_batches = dict(enumerate(batches))
    placed = place(strategy, list(num_batches), num_batches, slots, seconds)
    load = dict.fromkeys(slots, 0.0)
    for client in sorted(num_batches, key=num_batches.__getitem__, reverse=True):
        (at,) = (slot for slot, trained in placed.items() if client in trained)
        x = num_batches[client]
        takes = {slot: x if strategy == "bb" else seconds(slot.kind, x) for slot in slots}
        done = {slot: load[slot] + takes[slot] for slot in slots}
        assert done[at] == min(done.values())
        load[at] = done[at]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predictions_are_asked_for_once_however_many_clients_there_are(strategy: Strategy) -> None:
    arguments: list[tuple[str, int]] = []

    def predict(kind: str, x: int) -> float:
        arguments.append((kind, x))
        return seconds(kind, x)

    slots = [Slot(host, n, "slow" if host % 2 else "fast") for host in range(8) for n in range(8)]
    placed = place(strategy, range(1000), {n: 1 + n % 10 for n in range(1000)}, slots, predict)
    assert sum(map(len, placed.values())) == 1000
    assert sorted(arguments) == (
        sorted(product(("fast", "slow"), range(1, 11))) if strategy == "lb" else []
    )


# ----- how long clients take

point_lists = st.lists(
    st.tuples(st.integers(1, 10_000), st.integers(1, 50), st.floats(1e-9, 1e6)),
    min_size=1,
    max_size=12,
    unique_by=lambda point: point[0],
)
MALICE = (0.0, -1.0, nan, inf, -inf, 1e9, 1e-12)


def observed(*rounds: dict[int, float]) -> TrainingTimes:
    """Times of kind "cpu" in rounds 0, 1, … as given by x."""
    times = TrainingTimes()
    for number, measured in enumerate(rounds):
        for x, seconds in measured.items():
            times.observe(number, "cpu", x, seconds)
    times.fit(len(rounds) - 1)
    return times


# ----- the curve


@quick
@given(point_lists)
def test_no_curve_is_negative_and_none_fits_better(points: list[tuple[int, int, float]]) -> None:
    result = fit_curve(points)
    assert all(isfinite(part) and part >= 0 for part in result)
    x, count, seconds = np.array(points).T
    columns = np.stack([x, np.log(x), np.ones_like(x)], axis=1)
    errors = columns @ result - seconds
    # The conditions of Karush, Kuhn and Tucker: no part could grow, or shrink from above 0.
    slope = columns.T @ (count * errors)
    size = columns.T @ (count * np.maximum(seconds, np.abs(errors)))
    assert (slope >= -1e-6 * size).all()
    assert (np.abs(slope) <= 1e-6 * size)[np.array(result) * columns.max(axis=0) > 1e-3].all()


def test_a_point_of_many_clients_counts_as_many_times() -> None:
    times = TrainingTimes()
    clients = [(1, 3.0), (1, 1.0), (1, 2.6), (5, 3.5), (9, 8.0), (9, 2.0), (30, 9.0)]
    for x, seconds in clients:
        times.observe(0, "cpu", x, seconds)
    times.fit(0)
    nnls = pytest.importorskip("scipy.optimize").nnls
    wanted, _ = nnls([[x, log(x), 1] for x, _ in clients], [seconds for _, seconds in clients])
    assert times.prediction.curves["cpu"] == pytest.approx(wanted.tolist(), rel=1e-6, abs=1e-9)


# ----- correction, rounds and kinds


def test_predictions_are_the_mean_of_the_curve_and_of_what_was_seen_lately() -> None:
    times = observed({2: 2.0, 4: 4.0, 8: 8.0}, {2: 3.0, 4: 4.0})
    curve = times.prediction.curves["cpu"]
    assert times.prediction.seconds("cpu", 2) == pytest.approx((curve_at(curve, 2) + 3.0) / 2)
    assert times.prediction.seconds("cpu", 8) == pytest.approx(
        curve_at(curve, 8)
    )  # not seen lately


def test_rounds_after_the_last_do_not_count_yet() -> None:
    times = observed({2: 2.0}, {2: 50.0})
    times.fit(0)
    assert times.prediction.seconds("cpu", 2) == pytest.approx(2)


def test_fitting_after_every_round_gives_what_fitting_once_does() -> None:
    rounds = [{x: (n + 1) * x**0.5 for x in range(1, 9)} for n in range(6)]
    once, often = observed(*rounds), TrainingTimes()
    for number, measured in enumerate(rounds):
        for x, seconds in measured.items():
            often.observe(number, "cpu", x, seconds)
        often.fit(number - 1)
    often.fit(5)
    assert [often.prediction.seconds("cpu", x) for x in range(1, 12)] == pytest.approx(
        [once.prediction.seconds("cpu", x) for x in range(1, 12)]
    )


def test_a_new_kind_is_expected_to_be_as_the_others_and_without_any_batches_are_all() -> None:
    times = TrainingTimes()
    assert times.prediction.seconds("new", 7) == 7
    for kind, seconds in (("a", 1.0), ("b", 3.0)):
        times.observe(0, kind, 5, seconds)
    times.fit(0)
    assert times.prediction.seconds("new", 5) == pytest.approx(fmean((1, 3)))


# ----- malice


def test_seconds_that_cannot_be_are_left_out() -> None:
    honest, spoiled = observed({2: 2.0, 5: 4.0}), TrainingTimes()
    for seconds in MALICE:
        spoiled.observe(0, "cpu", 2, seconds)
        spoiled.observe(0, "only lies", 2, seconds)
    for x, seconds in ((2, 2.0), (5, 4.0)):
        spoiled.observe(0, "cpu", x, seconds)
    spoiled.fit(0)
    assert spoiled.prediction.curves == honest.prediction.curves


@quick
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["a", "b"]),
            st.integers(1, 2**31),
            st.one_of(st.floats(), st.sampled_from(MALICE)),
        ),
        max_size=20,
    )
)
def test_whatever_hosts_say_every_client_is_placed_once(
    said: list[tuple[int, str, int, float]],
) -> None:
    times = TrainingTimes()
    for number, kind, x, seconds in said:
        times.observe(number, kind, x, seconds)
    times.fit(2)
    slots = [Slot(1, 0, "a"), Slot(1, 1, "b"), Slot(2, 0, "c")]
    num_batches = {n: x for n, (_, _, x, _) in enumerate(said)}
    placed = place("lb", list(num_batches), num_batches, slots, times.prediction.seconds)
    assert sorted(n for trained in placed.values() for n in trained) == list(num_batches)
    predictions = [
        times.prediction.seconds(slot.kind, x) for slot in slots for x in (1, 2, 50, 2**31)
    ]
    assert all(isfinite(seconds) and seconds >= 0 for seconds in predictions)
