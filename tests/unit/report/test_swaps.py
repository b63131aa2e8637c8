import json
from pathlib import Path
from typing import Any

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Swap
from mdgan.report.numbers.swaps import (
    discriminator_paths,
    exactness,
    inexact,
    swap_counts,
    swaps_of,
)
from tests.unit.observe.fake_run import FakeRun


def swap(iteration: int, moves: dict[int, int], arrived: set[int] | None = None) -> Swap:
    taken = None if arrived is None else dict.fromkeys(arrived, "")
    return Swap(iteration=iteration, pairs=tuple(moves.items()), taken=taken, told_exact=True)


def always(*workers: int) -> dict[int, list[tuple[int, int]]]:
    """Workers that were there from the beginning to the end."""
    return {worker: [(0, 99)] for worker in workers}


def test_a_discriminator_is_followed_from_worker_to_worker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {2: 3, 3: 2}), swap(30, {1: 3, 3: 1})]
    assert discriminator_paths(always(1, 2, 3), swaps) == {
        (1, 0): [1, 2, 3, 1],
        (2, 0): [2, 1, 1, 3],
        (3, 0): [3, 3, 2, 2],
    }


def test_permutations_are_followed_too() -> None:
    assert discriminator_paths(always(1, 2, 3), [swap(10, {1: 2, 2: 3, 3: 1})]) == {
        (1, 0): [1, 2],
        (2, 0): [2, 3],
        (3, 0): [3, 1],
    }


def test_with_fewer_discriminators_than_workers_they_are_where_they_came_last() -> None:
    swaps = [swap(10, {3: 2}), swap(20, {2: 1}), swap(30, {1: 3})]
    assert discriminator_paths(always(1, 2, 3), swaps)[3, 0] == [3, 2, 1, 3]


def test_a_discriminator_is_gone_with_its_worker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {1: 3, 3: 1})]
    paths = discriminator_paths({**always(1, 3), 2: [(0, 15)]}, swaps)
    assert paths == {(1, 0): [1, 2, None], (2, 0): [2, 1, 3], (3, 0): [3, 3, 1]}


def test_a_worker_that_joins_brings_a_discriminator() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {1: 5, 5: 1}), swap(30, {1: 2, 2: 1})]
    paths = discriminator_paths({**always(1, 5), 2: [(0, 12), (25, 99)], 5: [(11, 99)]}, swaps)
    assert paths == {
        (1, 0): [1, 2, None, None],
        (2, 0): [2, 1, 5, 5],
        (5, 11): [None, None, 1, 2],
        (2, 25): [None, None, None, 1],
    }


def test_a_worker_that_is_replaced_between_two_swaps_has_another_discriminator() -> None:
    paths = discriminator_paths({**always(1), 2: [(0, 12), (13, 99)]}, [swap(10, {}), swap(20, {})])
    assert paths == {(1, 0): [1, 1, 1], (2, 0): [2, 2, None], (2, 13): [None, None, 2]}


def test_what_did_not_arrive_stays_with_its_giver() -> None:
    swaps = [swap(10, {1: 2, 2: 1}, arrived={2})]
    assert discriminator_paths({1: [(0, 99)], 2: [(0, 30)]}, swaps) == {
        (1, 0): [1, 2],
        (2, 0): [2, None],
    }


def test_swaps_are_counted_by_giver_and_taker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {1: 2, 2: 1}, arrived={1})]
    assert swap_counts(swaps) == {(1, 2): 1, (2, 1): 2}


def test_recorded_swaps_are_read(tmp_path: Path) -> None:
    fake = FakeRun(workers=5, iterations=60, swap_interval=10, inexact=frozenset({1}))
    swaps = swaps_of(RecordedRun.read(fake.write(tmp_path / "run")))
    assert [swap.iteration for swap in swaps] == [10, 20, 30, 40, 50]
    assert all(len(swap.moves) == 4 and swap.arrived == set(swap.moves) for swap in swaps)
    assert inexact(swaps) == [20]
    assert exactness(swaps) == "1 of 5 swaps did not arrive bit for bit, after iteration 20"
    assert exactness(swaps[:1]) == "all discriminators of 1 swap arrived bit for bit"


def test_every_discriminator_is_at_one_worker_at_a_time(tmp_path: Path) -> None:
    run = RecordedRun.read(FakeRun(workers=7, iterations=90).write(tmp_path / "run"))
    paths = discriminator_paths(always(*range(1, 8)), swaps_of(run))
    for places in zip(*paths.values(), strict=True):
        assert sorted(place or 0 for place in places) == list(range(1, 8))


def recorded(path: Path, *events: dict[str, Any]) -> list[Swap]:
    """The swaps of a run that recorded these."""
    FakeRun(workers=2, iterations=5).write(path)
    lines = [json.dumps({"event": "swap", **event}) + "\n" for event in events]
    (path / "metrics.jsonl").write_text("".join(lines))
    return swaps_of(RecordedRun.read(path))


def test_an_old_record_without_hashes_is_not_called_exact(tmp_path: Path) -> None:
    swaps = recorded(tmp_path / "run", {"iteration": 3, "moves": [[1, 2], [2, 1]]}, {})
    assert len(swaps) == 1
    assert exactness(swaps) == "1 swap, not all of them verified"


FOUR = {"iteration": 6, "moves": [[1, 2], [2, 1], [3, 4], [4, 3]], "sits_out": []}


def test_a_swap_whose_partner_died_is_no_error(tmp_path: Path) -> None:
    given = {"2": "b", "3": "c", "4": "d"}
    died = {**FOUR, "given": given, "taken": {"3": "d", "4": "c"}, "lost": [1], "exact": False}
    swaps = recorded(tmp_path / "run", {**died, "iteration": 4}, died)
    assert inexact(swaps) == []
    assert [swap.complete for swap in swaps] == [False, False]
    assert swap_counts(swaps) == {(3, 4): 2, (4, 3): 2}
    assert exactness(swaps) == (
        "all discriminators that arrived in 2 swaps did so bit for bit; 2 swaps cut short, after "
        "iteration 4, 6, since a worker died or was out of reach: its partner keeps its own"
    )


def test_what_arrived_otherwise_is_an_error_whichever_worker_died(tmp_path: Path) -> None:
    torn = {"given": {"2": "b", "3": "c", "4": "d"}, "taken": {"3": "d", "4": "x"}}
    swaps = recorded(tmp_path / "run", {**FOUR, **torn, "lost": [1], "exact": False})
    assert inexact(swaps) == [6]


def test_a_giver_that_died_before_it_told_leaves_its_gift_unverified(tmp_path: Path) -> None:
    taken = {"1": "b", "2": "a", "3": "d", "4": "c"}
    part = {"given": {"2": "b", "3": "c", "4": "d"}, "taken": taken, "lost": [1], "exact": False}
    swaps = recorded(tmp_path / "run", {**FOUR, **part})
    assert exactness(swaps) == "1 swap, not all of them verified"
