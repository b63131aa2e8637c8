"""How much a client has to train, and how many clients of a host train at once."""

from collections.abc import Callable
from math import inf, nan
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mdgan.families.federated.concurrency import (
    ROUNDS_EACH,
    ConcurrencyEstimator,
    SlotCount,
    device_of_slot,
    most_slots,
)
from mdgan.families.federated.messages import Load
from mdgan.families.federated.training_load import Capability, fit_line, training_loads, weak_loads
from tests.marks import examples

OPTIMIZE: Any = pytest.importorskip("scipy.optimize")

quick = settings(deadline=None, max_examples=examples(24))
points = st.lists(st.tuples(st.integers(1, 500), st.floats(1e-3, 10)), min_size=1, max_size=8)
capabilities = st.builds(
    Capability,
    seconds=points.map(tuple),
    memory_bytes=st.integers(1, 10_000),
    fixed_bytes=st.integers(1, 5_000),
    bytes_per_sample=st.integers(1, 300),
)
PLENTY = Capability(((10, 1.0), (20, 2.0)), 10**9, 1000, 10)


def at_speed(seconds_per_sample: float, *sizes: int) -> Capability:
    measured = tuple((size, seconds_per_sample * size) for size in sizes or (10, 50))
    return replace(PLENTY, seconds=measured)


# ----- the line


@quick
@given(points)
def test_lines_are_the_least_squares_of_scipy_that_are_not_negative(
    measured: list[tuple[int, float]],
) -> None:
    start, slope = fit_line(measured)
    assert start >= 0
    assert slope >= 0
    assert start + slope > 0
    sizes, seconds = np.array(measured).T
    columns = np.stack([np.ones_like(sizes), sizes], axis=1)
    _, wanted = OPTIMIZE.nnls(columns, seconds)
    assert np.linalg.norm(columns @ [start, slope] - seconds) == pytest.approx(wanted, abs=1e-9)


# ----- loads


@quick
@given(st.dictionaries(st.integers(1, 99), capabilities, max_size=8), st.data())
def test_what_loads_promise(known: dict[int, Capability], data: st.DataObject) -> None:
    most_iterations, most_samples = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 80))
    loads = training_loads(known, Load(most_iterations, most_samples))
    assert loads.keys() == known.keys()
    for n, capability in known.items():
        load = loads[n]
        assert most_iterations / 2 <= load.iterations <= most_iterations
        assert 1 <= load.batch_size <= most_samples

        def needs(size: int, capability: Capability = capability) -> bool:
            total = capability.fixed_bytes + capability.bytes_per_sample * size
            return total > capability.memory_bytes

        assert load.batch_size == 1 or not needs(load.batch_size)
        assert load.batch_size == most_samples or needs(load.batch_size + 1)


@quick
@given(st.lists(st.floats(0.001, 5), min_size=1, max_size=9), st.integers(1, 60))
def test_slow_clients_are_done_when_the_median_client_is(
    speeds: list[float], iterations: int
) -> None:
    loads = training_loads({n: at_speed(s) for n, s in enumerate(speeds)}, Load(iterations, 20))
    allowed = median(speeds) * 20 * iterations
    for n, speed in enumerate(speeds):
        load = loads[n]
        assert load.batch_size == 20
        seconds = speed * 20 * load.iterations
        if speed <= 1.1 * median(speeds) * (1 - 1e-9):
            assert load.iterations == iterations
        elif load.iterations > (iterations + 1) // 2:
            assert seconds <= 1.1 * allowed * (1 + 1e-9)
        if load.iterations < iterations:  # one more would be too many
            assert seconds + speed * 20 > allowed * (1 - 1e-9)


# ----- the experiment of figure 16


@pytest.mark.parametrize(("fraction", "num_weak"), [(0, 0), (0.1, 1), (0.29, 29), (0.9, 90)])
def test_the_last_clients_by_rank_are_weak(fraction: float, num_weak: int) -> None:
    num_clients = 100 if fraction in (0.29, 0.9) else 10
    loads = weak_loads(num_clients, fraction, "memory", Load(30, 51))
    weak = [n for n, load in loads.items() if load == Load(30, 26)]
    assert weak == list(range(num_clients - num_weak + 1, num_clients + 1))
    assert all(loads[n] == Load(30, 51) for n in loads.keys() - set(weak))


def test_slow_clients_get_half_of_the_iterations() -> None:
    assert weak_loads(2, 0.5, "speed", Load(31, 50)) == {1: Load(31, 50), 2: Load(16, 50)}
    assert weak_loads(1, 1.0, "speed", Load(1, 1)) == {1: Load(1, 1)}


# ----- records


GOOD = msgspec.to_builtins(PLENTY)


@pytest.mark.parametrize(
    "record",
    [
        *(None, [], {}, {**GOOD, "more": 1}),
        *({**GOOD, "seconds": s} for s in ([], "12", [[1, 1.0]] * 65, [1], [[1, 1.0, 2]])),
        *({**GOOD, "seconds": [[size, 1.0]]} for size in (0, 1.0, True, "1", 2**40)),
        *({**GOOD, "seconds": [[1, s]]} for s in (nan, inf, 0, -1.0, 1e9, True, "1")),
        *({**GOOD, "memory_bytes": size} for size in (0, True, -1, 2**70, 1.5)),
        *({**GOOD, "fixed_bytes": -1}, {**GOOD, "bytes_per_sample": 0}),
    ],
)
def test_nonsense_is_no_capability(record: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(record, Capability)


# The search for the number of slots stops where one more does not pay.


FIGURE_4 = {1: 1.0, 2: 1.7, 3: 2.2, 4: 2.5, 5: 2.6, 6: 2.5, 7: 2.3, 8: 2.0}
"""Work a second by slots, with the best at 5 as in figure 4 of the paper."""


def searched(most: int, rate: Callable[[int], float], start: int = 1) -> tuple[list[int], int]:
    """The slots of each round until the search is over, and what it chose."""
    search, used = ConcurrencyEstimator(most, start), list[int]()
    while not search.settled and len(used) < 200:
        used.append(search.candidate)
        search.note_round(60.0, 60.0 / rate(search.candidate))
    assert search.settled
    return used, search.candidate


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
        search.note_round(1.0, seconds)
    assert search.tried == [(1, 1.0), (2, 2.0)]
    assert (search.settled, search.candidate) == (True, 2)


def test_rounds_without_work_or_with_impossible_seconds_do_not_count() -> None:
    search = ConcurrencyEstimator(2)
    for work, seconds in ((0, 1), (1, 0), (1, -1), (1, nan), (nan, 1), (1, inf), (inf, 1)):
        search.note_round(work, seconds)
    assert (search.tried, search.candidate) == ([], 1)


@pytest.mark.parametrize(("free", "each", "slots"), [(1000, 300, 3), (1000, 301, 2), (5, 900, 1)])
def test_slots_are_as_many_as_fit_into_most_of_the_memory(free: int, each: int, slots: int) -> None:
    assert most_slots(free, each) == slots


def test_slots_of_a_node_take_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {0: "big", 1: "big", 2: "small"}
    free = {0: 900, 1: 600, 2: 700}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: names[device.index])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index], 1000))
    second = torch.device("cuda", 1)
    assert [device_of_slot(second, n).index for n in range(5)] == [1, 2, 0, 1, 2]
    cpu = torch.device("cpu")
    assert device_of_slot(cpu, 3) == cpu
    offered = [offer.partition(" slot")[0] for offer in SlotCount(4, second, "").offer()]
    assert offered == ["big: 2", "small: 1", "big: 1", "big: 2"]


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
