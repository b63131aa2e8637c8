import math
from typing import Any

import pytest

from mdgan.records.happenings import happening

HELD = {"3": {"samples": 30, "classes": [10, 20]}, "12": {"samples": 5, "classes": [5, 0]}}


def test_workers_that_began_or_went_on_are_told_with_what_they_hold() -> None:
    for kind in ("holdings", "resumed"):
        found = happening({"event": kind, "iteration": 7, "seconds": 1.5, "workers": HELD})
        assert found is not None
        assert (found.kind, found.iteration, found.seconds) == (kind, 7, 1.5)
        assert found.workers == (3, 12)
        assert [held.classes for held in found.holdings.values()] == [[10, 20], [5, 0]]


def test_a_worker_that_joined_is_told_with_what_it_holds() -> None:
    found = happening({"event": "joined", "iteration": 9, "workers": [12, 3], "holdings": HELD})
    assert found is not None
    assert found.workers == (3, 12)
    assert found.holdings[12].classes == [5, 0]
    assert found.seconds is None


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
