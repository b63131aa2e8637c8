"""What rows say together; who was there when is tested by the report's figure of it."""

from typing import Any

from mdgan.records.rows import Losses, ScoresRow, Swap
from mdgan.records.run_state import UNSAVED, UNSCORED, LastSwap, RunState


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
