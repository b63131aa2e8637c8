"""Scores and swaps in numbers."""

from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Swap
from mdgan.report.figures.workers import exactness, swap_counts
from mdgan.report.numbers.scores import (
    Score,
    histograms,
    last_score,
    reference,
    remarks,
    scores_of,
    yardstick,
)
from tests.unit.observe.fake_run import FakeRun
from tests.unit.records.made_up import run_of


def scores(iteration: int, sha256: str = "a", n: int = 100, **more: Any) -> dict[str, Any]:
    extractor = {"name": "net", "sha256": sha256}
    about = {"event": "scores", "iteration": iteration, "seconds": iteration / 2, "n": n}
    return {**about, "extractor": extractor, **more}


def test_scores_are_in_the_order_of_iterations() -> None:
    later = scores(20, scores={"fid": 3, "kid": 0.1, "kid_std": 0.02})
    found = run_of(later, scores(10, scores={"fid": 5.0}), scores(30, scores={"fid": float("nan")}))
    assert scores_of(found, "fid") == [Score(10, 5.0, 5.0, None), Score(20, 10.0, 3.0, None)]
    assert scores_of(found, "kid") == [Score(20, 10.0, 0.1, 0.02)]
    assert last_score(found, "fid") == Score(20, 10.0, 3.0, None)
    assert last_score(found, "recall") is None


def test_scores_that_cannot_be_compared_are_not_mixed() -> None:
    found = run_of(
        scores(10, scores={"fid": 5.0}),
        scores(20, scores={"fid": 4.0}),
        scores(20, scores={"fid": 900.0}, sha256="b"),
        scores(20, scores={"fid": 3.0}, n=50_000),
    )
    assert [score.value for score in scores_of(found, "fid")] == [5.0, 4.0]
    assert len(remarks(found)) == 2


def test_a_generator_that_is_scored_again_has_its_newest_score() -> None:
    found = run_of(scores(10, scores={"fid": 5.0}), scores(10, scores={"fid": 4.5}))
    assert [score.value for score in scores_of(found, "fid")] == [4.5]


def test_references_are_the_newest_that_are_there() -> None:
    found = run_of(
        scores(10, real={"fid": 2.5}), scores(20, real={"fid": 2.4}), scores(30, floor={"fid": 9.0})
    )
    assert reference(found, "fid") == 2.4
    assert reference(found, "inception_score") is None


def test_histograms_are_shares() -> None:
    found = run_of(scores(10, class_histogram=[1, 3], real_class_histogram=[2, 2]), scores(20))
    assert histograms(found) == (10, [0.25, 0.75], [0.5, 0.5])
    assert histograms(run_of(scores(10, class_histogram=[0, 0]))) is None


def test_warnings_and_reasons_are_told_once() -> None:
    left_out = {"recall": "no held-out data"}
    event: dict[str, Any] = {"warnings": ["too few samples"], "left_out": left_out}
    unscored = {"event": "unscored", "iteration": 0, "reason": "no classes"}
    found = run_of(scores(10, **event), scores(20, **event), unscored)
    assert remarks(found) == [
        "too few samples",
        "recall left out: no held-out data",
        "Not scored: no classes",
    ]


def test_runs_scored_differently_have_other_yardsticks() -> None:
    a, b, c = run_of(scores(10)), run_of(scores(10, sha256="b")), run_of(scores(10, n=50))
    other_data = run_of(scores(10, n_real=7)), run_of(scores(10, real_class_histogram=[3, 4]))
    assert yardstick(a) == yardstick(run_of(scores(10)))
    assert len({yardstick(one) for one in (a, b, c, *other_data, run_of())}) == 6
    assert yardstick(b)[0] == "100 samples against real ones of –, net b"


def test_a_score_that_is_not_drawn_is_named_with_the_reason() -> None:
    first = scores(10, scores={"fid": 4.25})
    again = run_of(first, scores(10), scores(20), scores(20, n=50), scores(5, sha256="b"))
    assert remarks(again) == [
        "FID 4.25 of iteration 10 is not drawn: that iteration was scored again.",
        "A score of iteration 20 is not drawn: it is from 50 samples, the others from 100.",
        "A score of iteration 5 is not drawn: its extractor was net b, that of the others net a.",
    ]


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
