"""Rows with a value that is impossible are left out as a whole."""

from typing import Any

import pytest

from mdgan.records.run_state import typed_row

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
