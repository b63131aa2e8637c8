"""What `--aggregation` of MD-GAN accepts."""

import pytest

from mdgan.errors import BadInput
from mdgan.families.mdgan.settings import AGGREGATION_FORMS, MDGANSettings, parse_aggregation


@pytest.mark.parametrize(
    ("text", "num_workers", "rule"),
    [
        ("mean", 1, ("mean", 0)),
        ("median", 3, ("median", 0)),
        ("trimmed-mean:3", 7, ("trimmed-mean", 3)),
        ("krum:3", 9, ("krum", 3)),
        ("clip:2", 3, ("clip", 2)),
        ("clip:1e-1", 10, ("clip", 0.1)),
        ("f2u", 1, ("f2u", 0)),
        ("f2a", 1, ("f2a", 1)),
        ("f2a:2.5", 2, ("f2a", 2.5)),
        ("f2a:1e300", 10, ("f2a", 1e300)),
    ],
)
def test_rules_are_read(text: str, num_workers: int, rule: tuple[str, float]) -> None:
    assert parse_aggregation(text) == rule
    settings = MDGANSettings.read({"world_size": num_workers + 1, "aggregation": text})
    assert settings.aggregation == rule
    assert parse_aggregation(str(settings.aggregation)) == rule


@pytest.mark.parametrize(
    ("text", "num_workers", "reason"),
    [
        ("krum:4", 10, "needs at least 11 workers to outvote 4, not 10"),
        ("krum:1", 4, "needs at least 5 workers to outvote 1, not 4"),
        ("trimmed-mean:5", 10, "needs at least 11 workers to outvote 5, not 10"),
        ("median", 2, "needs at least 3 workers to outvote 1, not 2"),
        ("clip:1", 1, "needs at least 3 workers"),
        ("krum:0", 10, "F must be at least 1"),
        ("trimmed-mean:0", 10, "F must be at least 1"),
        ("clip:0", 10, "C must be a number above 0"),
        ("clip:-1", 10, "C must be a number above 0"),
        ("clip:1e999", 10, "C must be a number above 0"),
        ("clip:1e", 10, "C must be a number above 0"),
        *(
            (text, 10, "LAMBDA must be a number above 0; at 0 it is mean")
            for text in ("f2a:0", "f2a:-1", "f2a:1e999", "f2a:1e-999", "f2a:1e", "f2a:+-")
        ),
        *(
            (text, 10, f"not one of {AGGREGATION_FORMS}")
            for text in (
                *("", "Mean", "average", "krum", "krum:", "krum:-1", "krum:1.5", "krum:²"),
                *("median:1", "mean:", "trimmed-mean", "clip", "clip:nan", "krum:1:2"),
                f"krum:{'9' * 5000}",
                *("f2u:1", "f2u:", "f2a:", "f2a:nan", "f2a:inf", "f2a:1:2", "F2U", "f2"),
            )
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(text: str, num_workers: int, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        MDGANSettings.read({"world_size": num_workers + 1, "aggregation": text})
    assert str(caught.value).startswith(f"--aggregation {text}: {reason}")


def test_a_rule_of_two_lines_is_refused_in_one() -> None:
    with pytest.raises(ValueError, match="not one of"):
        parse_aggregation("mean\nmean")
    with pytest.raises(BadInput) as caught:
        MDGANSettings.read({"aggregation": "mean\nmean"})
    assert str(caught.value).startswith("--aggregation mean mean: ")


def test_the_forms_are_listed_and_each_can_be_given() -> None:
    forms = AGGREGATION_FORMS.replace("LAMBDA", "1").replace("F", "1").replace("C", "1")
    rules = [parse_aggregation(form) for form in forms.split(", ")]
    assert [rule.name for rule in rules if rule.needs_verdicts] == ["f2u", "f2a", "f2a"]
    assert {rule.name for rule in rules if not rule.withstands(100)} == {"mean", "f2u", "f2a"}
