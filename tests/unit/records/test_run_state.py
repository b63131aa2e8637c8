"""What a run's rows say, alone and together; the report's tests cover attendance."""

import math
from typing import Any

import pytest

from mdgan.records.happenings import Happening
from mdgan.records.rows import Losses, ScoresRow, Swap
from mdgan.records.run_state import UNSAVED, UNSCORED, LastSwap, RunState, typed_row

ROUND = {
    **{"event": "round", "iteration": 5, "number": 0, "asked": [1, 2], "took_part": [1, 2]},
    **{"weights": [0.5, 0.5], "iterations": {"1": 5, "2": 5}, "batch_sizes": {"1": 9, "2": 9}},
}
PROFILE = {
    **{"event": "profile", "iteration": 2, "role": "host-1", "first": 1, "last": 2, "cores": 2},
    **{"profiled_seconds": 1.0, "operators": {}, "busy_cores": 1.0},
}
SLOT = {
    **{"host": 1, "slot": 0, "kind": "cpu", "busy": 2.5, "work": 5, "clients": [7, 3, 9]},
    **{"batches": [2, 3, 1], "begin": [0, 1.5, None], "seconds": [1.5, 1, 2]},
    "predicted": [1, None, 3],
}
WRONG: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *((ROUND, {"number": None}), (ROUND, {"iterations": {"x": 5}}), (ROUND, {"iteration": "5"})),
    *((ROUND, {"weights": [0.5]}), (ROUND, {"weights": 1}), (ROUND, {"weights": [0.5, None]})),
    *((ROUND, {"took_part": 3}), (ROUND, {"took_part": [-1, 2]})),
    *((PROFILE, {"operators": wrong}) for wrong in ({"convolution": -1.0}, {"<b>": 1.0}, 7)),
    *((PROFILE, {"cores": 0}), (PROFILE, {"gpu": 1.5}), (PROFILE, {"first": 1 << 60})),
    *((SLOT, {"busy": -1}), (SLOT, {"host": 0}), (SLOT, {"clients": [7]}), (SLOT, {"kind": 3})),
    *((SLOT, {"predicted": [1]}), (SLOT, {"seconds": [1, 2, float("nan")]})),
    *((SLOT, {"begin": [0, 1, float("inf")]}), (SLOT, {"batches": [-1, 2, 3]})),
]


def placed(slot: dict[str, Any]) -> dict[str, Any]:
    """A slot as a row; other rows stay as they are."""
    about = {"event": "placement", "iteration": 5, "number": 0, "strategy": "lb", "makespan": 3.0}
    return slot if "event" in slot else {**about, "slots": [slot]}


@pytest.mark.parametrize(("row", "change"), WRONG, ids=str)
def test_rows_that_make_no_sense(row: dict[str, Any], change: dict[str, Any]) -> None:
    typed_row(placed(row))
    with pytest.raises(ValueError, match=r".+"):
        typed_row(placed({**row, **change}))


def happening(record: dict[str, Any]) -> Happening | None:
    try:
        row = typed_row(record)
    except ValueError:
        return None
    return row if isinstance(row, Happening) else None


HELD = {"3": {"samples": 30, "classes": [10, 20]}, "12": {"samples": 5, "classes": [5, 0]}}


def test_workers_that_began_or_went_on_are_told_with_what_they_hold() -> None:
    for kind in ("holdings", "resumed"):
        result = happening({"event": kind, "iteration": 7, "seconds": 1.5, "workers": HELD})
        assert result is not None
        assert (result.kind, result.iteration, result.seconds) == (kind, 7, 1.5)
        assert result.workers == (3, 12)
        assert [held.classes for held in result.holdings.values()] == [[10, 20], [5, 0]]


def test_a_worker_that_joined_is_told_with_what_it_holds() -> None:
    result = happening({"event": "joined", "iteration": 9, "workers": [12, 3], "holdings": HELD})
    assert result is not None
    assert result.workers == (3, 12)
    assert result.holdings[12].classes == [5, 0]
    assert result.seconds is None


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"event": "swap", "iteration": 3, "moves": [[1, 2]]},
        {"event": ["lost"], "iteration": 3, "workers": [1]},
        {"event": "lost", "iteration": None, "workers": [1]},
        {"event": "lost", "iteration": -1, "workers": [1]},
        {"event": "lost", "iteration": True, "workers": [1]},
        {"event": "lost", "iteration": 1.5, "workers": [1]},
        {"event": "lost", "iteration": 3},
        {"event": "lost", "iteration": 3, "workers": None},
        *({"event": "lost", "iteration": 3, "workers": [w]} for w in ("1", None, 0, -1, True, 1.0)),
        *({"event": "holdings", "iteration": 0, "workers": {w: {}}} for w in ("x", "²", "9" * 99)),
        {"event": "holdings", "iteration": 0, "workers": {"1": 5}},
        {"event": "holdings", "iteration": 0, "workers": {"1": {"classes": [1, None]}}},
        {"event": "holdings", "iteration": 0, "workers": {}, "seconds": math.nan},
    ],
)
def test_what_makes_no_sense_is_nothing(record: dict[str, Any]) -> None:
    assert happening(record) is None


def state_of(*rows: dict[str, Any], most_rows: int | None = None) -> RunState:
    state = RunState(most_rows)
    for row in rows:
        state.take(row)
    return state


def test_numbers_of_workers_are_kept_whatever_they_are_called() -> None:
    told = {"age": {"1": [1.5, 2], "2": 3}, "no numbers": {"x": 3}, "text": "y", "none": {"1": []}}
    state = state_of({"iteration": 1, **told}, {"iteration": 2, "age": {"2": 4.0}})
    first, second = state.of(Losses)
    assert first.numbers == {"age": {1: (1.5, 2.0), 2: (3.0,)}, "none": {}}
    assert second.numbers == {"age": {2: (4.0,)}}
    assert {n: worker.numbers for n, worker in state.workers.items()} == {
        **{1: {"age": 1.5}, 2: {"age": 4.0}}
    }


def test_old_rows_are_forgotten_where_few_are_wanted_but_not_scores() -> None:
    losses = [{"iteration": i, "seconds": float(i), "generator_loss": 0.5} for i in range(1, 10)]
    scores = [{"event": "scores", "iteration": i, "scores": {"fid": 9.0}} for i in range(1, 10)]
    other = {"event": "scores", "iteration": 10, "scores": {"fid": 1.0}, "by": "evaluate"}
    state = state_of(*losses, *scores, other, most_rows=2)
    assert [row.iteration for row in state.of(Losses)] == [8, 9]
    assert [row.iteration for row in state.of(ScoresRow)] == [9, 10]
    assert [row.iteration for row in state.scores] == [*range(1, 10)]
    assert [iteration for iteration, *_ in state.losses] == [*range(1, 10)]
    assert state.seconds == 9.0


def test_the_last_swap_of_each_worker() -> None:
    swap = {"event": "swap", "iteration": 7, "moves": [[1, 2], [2, 1], [3, 4]]}
    state = state_of(swap, {**swap, "iteration": 9, "moves": [[4, 3]], "taken": {}})
    assert len(state.of(Swap)) == 2
    assert {n: worker.swap for n, worker in state.workers.items()} == {
        **{2: LastSwap(7, 1, True), 1: LastSwap(7, 2, True), 4: LastSwap(7, 3, False)}
    }


def test_reasons_and_times() -> None:
    began = {"event": "holdings", "iteration": 0, "seconds": 2.0, "time": 1002.0, "workers": {}}
    unsaved = {"event": "unsaved", "iteration": 5, "seconds": 4.5, "reason": "full"}
    state = state_of(began, unsaved, {"event": "unscored", "iteration": 0, "reason": "no data"})
    assert (state.reasons(UNSAVED), state.reasons(UNSCORED)) == (["full"], ["no data"])
    assert state.time_of(state.take(unsaved)) == 1004.5


@pytest.mark.parametrize("how", ["lost", "shut out", "left"])
def test_no_bound_is_stated_for_a_worker_that_ended_without_telling_what_it_spent(how: str) -> None:
    state = RunState()
    state.take({"event": "holdings", "iteration": 0, "seconds": 0.0, "workers": HELD})
    state.take({"event": "epsilon", "iteration": 10, "epsilon": {"3": 4.19, "12": 4.0}})
    assert state.spent_in_words(1e-4) == ("4.19", "at most (rank 3), δ = 0.0001")
    state.take({"event": how, "iteration": 15, "workers": [12], "reason": "killed"})
    more = "" if how == "left" else "; of rank 12 what it told before it was lost"
    assert state.spent_in_words() == ("4.19", f"at most (rank 3){more}")
    state.take({"event": "joined", "iteration": 20, "workers": [12]})
    assert state.untold == []
