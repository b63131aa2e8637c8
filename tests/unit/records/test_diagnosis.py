"""Failing runs are told apart from healthy ones; the numbers are of real runs."""

from collections.abc import Sequence
from typing import Any

import pytest

from mdgan.records.diagnosis import diagnose
from mdgan.records.rows import Losses, ScoresRow
from mdgan.spelling import spelled


def logged(*pairs: tuple[float | None, float | None]) -> list[Losses]:
    """Losses of D and G, logged every 10 iterations."""
    rows = enumerate(pairs, start=1)
    return [
        Losses(iteration=10 * n, discriminator_loss=d, generator_loss=g, workers=2)
        for n, (d, g) in rows
    ]


def test_losses_that_are_not_told_are_no_trouble() -> None:
    assert diagnose([Losses(iteration=1)], [], {"discriminator_loss": "bce"}) is None


def scored(
    fids: Sequence[float], classes: Sequence[int] = (), of_real: float = 0.5
) -> list[ScoresRow]:
    covered: list[dict[str, float | None]] = [{"classes_covered": n} for n in classes]
    covered = covered or [{}] * len(fids)
    about: dict[str, Any] = {"real": {"fid": of_real, "classes": 10}}
    return [
        ScoresRow(iteration=500 * n, scores={"fid": fid, **more}, **about)
        for n, (fid, more) in enumerate(zip(fids, covered, strict=True), start=1)
    ]


HEALTHY = logged((1.27, 0.97), (1.26, 0.92), (1.24, 0.88), (1.22, 0.98), (1.21, 0.98))
WON = logged((0.0007, 10.3), (0.0009, 10.2), (0.0009, 10.3), (0.0014, 10.9), (0.0011, 10.4))
EXPLODED = logged((25.9, 60.3), (18.8, 4.5), (7.6, 21.7), (6.6, 4.4), (5.6, 3.3))
NAN = logged((1.2, 0.9), (1.2, 0.9), (1.3, 0.9), (9.1, 4.0), (None, None))
DIGITS = scored([5.53, 5.49, 2.8, 3.09, 1.92, 1.87, 1.87], [10] * 7)


@pytest.mark.parametrize(
    ("losses", "scores", "name"),
    [
        (WON, [], "D has won"),
        (WON, scored([130.8, 130.8, 107.3, 78.2, 109.2], [1, 1, 2, 2, 2]), "D has won"),
        (EXPLODED, DIGITS, "losses explode"),
        (logged(*[(1.0, 4e2)] * 5), [], "losses explode"),
        (NAN, DIGITS, "losses are not finite"),
        (HEALTHY, scored([9.0, 5.0, 5.2, 6.1], [10, 9, 4, 5]), "mode collapse"),
        (HEALTHY, scored([9.0, 5.0, 10.4, 12.0], [10] * 4), "scores get worse"),
    ],
    ids=["won", "won and collapsed", "exploding", "G explodes", "NaN", "collapse", "worse"],
)
def test_what_goes_wrong(losses: list[Losses], scores: list[ScoresRow], name: str) -> None:
    result = diagnose(losses, scores, {"discriminator_loss": "bce"})
    assert result is not None
    assert result.name == name
    assert "; people then " in str(result)


@pytest.mark.parametrize(
    ("losses", "scores", "config"),
    [
        ([], [], {}),
        (HEALTHY, [], {}),
        (HEALTHY, DIGITS, {}),
        (WON[:4], [], {}),
        (logged((0.001, 5.0), (0.9, 1.0), (0.8, 1.0), (0.9, 1.1), (0.002, 5.0)), [], {}),
        (WON, scored([90.0, 60.0, 41.0]), {}),
        (logged(*[(0.05, 4.0)] * 5), [], {}),
        (WON, [], {"discriminator_loss": "one of my own"}),
        (logged(*[(0.02, 0.2)] * 5), [], {"discriminator_loss": "least-squares"}),
        (logged(*[(6.0, 30.0)] * 5), [], {"discriminator_loss": "hinge"}),
        (HEALTHY, scored([80.0, 50.0], [1, 3]), {}),
        (HEALTHY, scored([80.0, 70.0, 60.0], [1, 2, 4]), {}),
        (HEALTHY, scored([82.1, 80.8, 79.6, 78.7, 77.8], [1] * 5), {}),
        (HEALTHY, scored([0.6, 1.3, 1.3], [10] * 3), {}),
        (HEALTHY, scored([5.0, 12.0, 5.5], [10] * 3), {}),
    ],
    ids=[
        *("nothing yet", "no scores", "digits", "four rows", "two batches", "FID still falls"),
        *("a strong D", "another loss", "least squares", "hinge", "two scores"),
        *("classes are still found", "scored often", "near real data", "one bad score"),
    ],
)
def test_no_false_alarm(losses: list[Losses], scores: list[ScoresRow], config: Any) -> None:
    assert diagnose(losses, scores, config) is None


@pytest.mark.parametrize("privacy", [{"dp_epsilon": 8.0}, {"dp_noise": 1.0}], ids=str)
def test_where_there_is_noise_no_learning_rate_is_blamed(privacy: dict[str, float]) -> None:
    for losses, scores in ((WON, []), (HEALTHY, scored([9.0, 5.0, 5.2, 6.1], [10, 9, 4, 5]))):
        result = diagnose(losses, scores, {"discriminator_loss": "bce", **privacy})
        assert result is not None
        assert "lr" not in result.remedy
        assert "noise of differential privacy is the likely cause" in result.remedy


def test_the_sentence_has_the_numbers_and_the_way_out() -> None:
    assert spelled(str(diagnose(WON, [], {}))) == (
        "the discriminator has won: it is always right, and the generator learns nothing "
        "(D loss 0.0009, 1.4 by guessing; G loss 10); people then lower the lr of "
        "--discriminator-optimizer, --local-steps, or an unusually high lr of --generator-optimizer"
    )
    worse = diagnose(HEALTHY, scored([9.0, 5.0, 10.4, 102.0]), {})
    assert worse is not None
    assert worse.text == ("the generator has become worse: FID 102, after 5 at iteration 1,000")
