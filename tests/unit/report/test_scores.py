from typing import Any

from mdgan.report.numbers.scores import (
    Score,
    histograms,
    last_score,
    reference,
    remarks,
    scores_of,
    yardstick,
)
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
        scores(10, floor={"fid": 2.5}), scores(20, floor={"fid": 2.4}), scores(30, floor={})
    )
    assert reference(found, "floor", "fid") == 2.4
    assert reference(found, "real", "inception_score") is None


def test_histograms_are_shares() -> None:
    found = run_of(scores(10, class_histogram=[1, 3], real_class_histogram=[2, 2]), scores(20))
    assert histograms(found) == (10, [0.25, 0.75], [0.5, 0.5])
    assert histograms(run_of(scores(10, class_histogram=[0, 0]))) is None


def test_records_of_any_shape_are_survived() -> None:
    strange: list[dict[str, Any]] = [
        {"event": "scores"},
        {"event": "scores", "iteration": "ten", "scores": {"fid": 1}},
        scores(10, scores=[1], extractor=None, floor="high", class_histogram={}, warnings="no"),
    ]
    found = run_of(*strange)
    assert scores_of(found, "fid") == []
    assert reference(found, "floor", "fid") is None
    assert histograms(found) is None
    assert last_score(run_of(*strange, scores(20, scores={"fid": 5.0})), "fid") is not None


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
