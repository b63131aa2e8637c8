import json
from pathlib import Path
from typing import Any

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Swap
from mdgan.report.figures.swaps import exactness, swap_counts
from tests.unit.observe.fake_run import FakeRun


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


def recorded(path: Path, *events: dict[str, Any]) -> list[Swap]:
    """The swaps of a run that recorded these."""
    FakeRun(workers=2, iterations=5).write(path)
    lines = [json.dumps({"event": "swap", **event}) + "\n" for event in events]
    (path / "metrics.jsonl").write_text("".join(lines))
    return RecordedRun.read(path).of(Swap)


def test_an_old_record_without_hashes_is_not_called_exact(tmp_path: Path) -> None:
    swaps = recorded(tmp_path / "run", {"iteration": 3, "moves": [[1, 2], [2, 1]]}, {})
    assert len(swaps) == 1
    assert exactness(swaps) == "1 swap, not all of them verified"


FOUR = {"iteration": 6, "moves": [[1, 2], [2, 1], [3, 4], [4, 3]], "sits_out": []}


def test_a_swap_whose_partner_died_is_no_error(tmp_path: Path) -> None:
    given = {"2": "b", "3": "c", "4": "d"}
    died = {**FOUR, "given": given, "taken": {"3": "d", "4": "c"}, "lost": [1], "exact": False}
    swaps = recorded(tmp_path / "run", {**died, "iteration": 4}, died)
    assert [swap.complete for swap in swaps] == [False, False]
    assert swap_counts(swaps) == {(3, 4): 2, (4, 3): 2}
    assert exactness(swaps) == (
        "all discriminators that arrived in 2 swaps did so bit for bit; 2 swaps cut short, after "
        "iteration 4, 6, since a worker died or was out of reach: its partner keeps its own"
    )


def test_what_arrived_otherwise_is_an_error_whichever_worker_died(tmp_path: Path) -> None:
    torn = {"given": {"2": "b", "3": "c", "4": "d"}, "taken": {"3": "d", "4": "x"}}
    swaps = recorded(tmp_path / "run", {**FOUR, **torn, "lost": [1], "exact": False})
    assert exactness(swaps).startswith("1 of 1 swap did not arrive bit for bit, after iteration 6")


def test_a_giver_that_died_before_it_told_leaves_its_gift_unverified(tmp_path: Path) -> None:
    taken = {"1": "b", "2": "a", "3": "d", "4": "c"}
    part = {"given": {"2": "b", "3": "c", "4": "d"}, "taken": taken, "lost": [1], "exact": False}
    swaps = recorded(tmp_path / "run", {**FOUR, **part})
    assert exactness(swaps) == "1 swap, not all of them verified"
