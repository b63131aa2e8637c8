import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import entropy

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import RoundRow
from mdgan.report.numbers.attendance import (
    kl_of_seen,
    rounds_until_seen,
    samples_trained,
    seen_of,
)
from tests.unit.observe.federated import federated_run
from tests.unit.records.made_up import run_of

HELD = {1: [10, 0, 5], 2: [0, 20, 0], 3: [4, 4, 4]}


def event(number: int, took_part: list[int], **more: Any) -> dict[str, Any]:
    return {
        "event": "round",
        "iteration": 5 * (number + 1),
        "seconds": 1.0,
        "number": number,
        "asked": took_part,
        "took_part": took_part,
        "weights": [1 / len(took_part)] * len(took_part) if took_part else [],
        "iterations": {str(rank): 5 for rank in took_part},
        "batch_sizes": {str(rank): 10 * rank for rank in took_part},
        "aborted": False,
        **more,
    }


def run(*events: dict[str, Any], held: dict[int, list[int]] | None = None) -> RecordedRun:
    told = {str(n): {"classes": counts} for n, counts in (held or HELD).items()}
    first = {"event": "holdings", "iteration": 0, "workers": told}
    return run_of(first, *events)


def test_kl_of_what_was_seen_in_equal_shares_is_zero() -> None:
    recorded = run(event(0, [1]), event(1, [1, 2]), held={1: [3, 7], 2: [0, 1]})
    assert kl_of_seen(run(event(0, [1, 2, 3])))[-1] == 0.0
    assert kl_of_seen(recorded) == pytest.approx(
        [entropy([3, 8], [3, 7]), entropy([3, 8], [6, 15])]
    )


def test_aborted_rounds_and_workers_without_an_answer_show_nothing() -> None:
    recorded = run(event(0, [1], asked=[1, 2]), event(1, [2, 3], aborted=True), event(2, [3]))
    assert seen_of(recorded)[0] == [[10, 0, 5], [10, 0, 5], [14, 4, 9]]
    rounds = recorded.of(RoundRow)
    assert [one.asked for one in rounds] == [(1, 2), (2, 3), (3,)]
    assert [one.counted for one in rounds] == [(1,), (), (3,)]
    assert samples_trained(rounds) == 5 * 10 + 5 * 30


def test_a_class_without_samples_is_not_waited_for() -> None:
    recorded = run(*(event(n, [1]) for n in range(3)), held={1: [300, 0, 170], 2: [0, 0, 1]})
    assert seen_of(recorded)[1] == [300, 171]
    assert rounds_until_seen(recorded) == 3
    assert rounds_until_seen(recorded, 171) == 2
    assert rounds_until_seen(recorded, 511) is None


@pytest.mark.parametrize("balanced", [True, False])
def test_a_recorded_run_is_counted_as_numpy_counts_it(tmp_path: Path, balanced: bool) -> None:
    path = federated_run(tmp_path / "run", rounds=25, balanced=balanced, aborted=frozenset({3}))
    events = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    told = events[0]["workers"]
    held = np.zeros((21, 10), int)
    for name, what in told.items():
        held[int(name)] = what["classes"]
    taken = [e for e in events if e.get("event") == "round"]
    each = np.array([held[e["took_part"]].sum(0) * (not e["aborted"]) for e in taken])
    seen = each.cumsum(0)
    recorded = RecordedRun.read(path)
    assert seen_of(recorded)[0] == seen.tolist()
    with np.errstate(divide="ignore"):
        expected = [entropy(held.sum(0), counts) for counts in seen]
    assert kl_of_seen(recorded) == pytest.approx(expected, rel=1e-9)
    often = (seen >= 500).all(1)
    assert often.any()
    assert rounds_until_seen(recorded) == 1 + int(often.argmax())
    assert {round(sum(one.weights.values()), 12) for one in recorded.of(RoundRow)} == {1.0}


def test_details_that_are_missing_count_as_nothing() -> None:
    strange = event(0, [1, 2])
    for name in ("iterations", "batch_sizes", "asked"):
        del strange[name]
    (one,) = run(strange).of(RoundRow)
    assert one.asked == ()
    assert samples_trained([one]) == 0
    assert rounds_until_seen(run_of(strange)) is None
