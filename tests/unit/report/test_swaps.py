from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Swap
from mdgan.report.figures.workers import exactness, swap_counts
from tests.unit.observe.fake_run import FakeRun
from tests.unit.records.made_up import run_of


def swap(iteration: int, moves: dict[int, int], arrived: set[int] | None = None) -> Swap:
    taken = None if arrived is None else dict.fromkeys(arrived, "")
    return Swap(iteration=iteration, pairs=tuple(moves.items()), taken=taken, said_exact=True)


def test_swaps_are_counted_by_giver_and_taker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {1: 2, 2: 1}, arrived={1})]
    assert swap_counts(swaps) == {(1, 2): 1, (2, 1): 2}


def test_recorded_swaps_are_read(tmp_path: Path) -> None:
    fake = FakeRun(workers=5, iterations=60, swap_interval=10, inexact=frozenset({1}))
    swaps = RecordedRun.read(fake.write(tmp_path / "run")).of(Swap)
    assert [swap.iteration for swap in swaps] == [10, 20, 30, 40, 50]
    assert all(len(swap.moves) == 4 and swap.arrived == set(swap.moves) for swap in swaps)
    assert exactness(swaps) == "1 of 5 swaps did not arrive bit for bit, after iteration 20"
    assert exactness(swaps[:1]) == "all discriminators of 1 swap arrived bit for bit"


FOUR = {"iteration": 6, "moves": [[1, 2], [2, 1], [3, 4], [4, 3]], "sits_out": []}
TOLD = {"given": {"2": "b", "3": "c", "4": "d"}, "lost": [1], "exact": False}


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            [{"iteration": 3, "moves": [[1, 2], [2, 1]]}, {}],
            "1 swap, not all of them verified",  # an old record without digests
        ),
        (
            [{**FOUR, **TOLD, "taken": {"3": "d", "4": "c"}, "iteration": i} for i in (4, 6)],
            "all discriminators that arrived in 2 swaps did so bit for bit; 2 swaps cut short, "
            "after iteration 4, 6, since a worker died or was out of reach: its partner keeps its "
            "own",
        ),
        (
            [{**FOUR, **TOLD, "taken": {"3": "d", "4": "x"}}],
            "1 of 1 swap did not arrive bit for bit, after iteration 6",
        ),
        (
            [{**FOUR, **TOLD, "taken": {"1": "b", "2": "a", "3": "d", "4": "c"}}],
            "1 swap, not all of them verified",  # a giver died before it reported its digest
        ),
    ],
)
def test_whether_discriminators_arrived_bit_for_bit(
    events: list[dict[str, Any]], words: str
) -> None:
    swaps = run_of(*({"event": "swap", **event} for event in events)).of(Swap)
    assert exactness(swaps) == words
    if len(swaps) == 2:
        assert [swap.complete for swap in swaps] == [False, False]
        assert swap_counts(swaps) == {(3, 4): 2, (4, 3): 2}
