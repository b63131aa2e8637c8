"""Rules that decide whether a run's products may leave it."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.records.release_policy import Rule, decide, default_text, policy_text, rules_in
from tests.claims.registry import claim


def verdicts(rules: str, **figures: float) -> list[bool]:
    results = rules_in(f"require = {rules}", "p.toml", "pictures", has_dp=False)
    return [each.met for each in decide(results, figures)]


def test_rules_compare_figures() -> None:
    assert verdicts('["epsilon <= 3", "fid <= 2 * floor"]', epsilon=3, fid=2.1, floor=1) == [
        True,
        False,
    ]
    assert verdicts('["signed_by >= 4", "a<=b"]', signed_by=4, a=1, b=1) == [True, True]


@claim("if-known", "An unknown figure does not meet a rule without if known.")
def test_what_is_not_known_is_not_met_unless_a_rule_says_so() -> None:
    assert verdicts('["fid <= 3", "fid <= 3 if known", "fid <= 2 * floor"]', floor=1.0) == [
        False,
        True,
        False,
    ]


def test_a_verdict_names_the_figure() -> None:
    (rule,) = rules_in('require = ["fid <= 2 * floor"]', "p", "rows", has_dp=True)
    assert decide([rule], {"fid": 5.0, "floor": 1.5})[0].why == (
        "fid <= 2 * floor: fid = 5, floor = 1.5"
    )


def test_sections_are_for_kinds_of_samples_and_for_privacy() -> None:
    text = 'require = ["a <= 1"]\n[rows]\nrequire = ["b <= 1"]\n[dp]\nrequire = ["c <= 1"]'

    def names(kind: str, *, has_dp: bool) -> str:
        return "".join(rule.figure for rule in rules_in(text, "p", kind, has_dp=has_dp))

    assert names("pictures", has_dp=False) == "a"
    assert names("rows", has_dp=False) == "ab"
    assert names("rows", has_dp=True) == "abc"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("require = [", "no TOML"),
        ('require = "epsilon <= 3"', "must be a list of rules"),
        ('require = ["epsilon < 3"]', "a rule is like"),
        ('require = ["__import__ <= 3"]', "a rule is like"),
        ("require = [3]", "a rule is like"),
        ("[people]\nrequire = []", "'people'"),
        ('[dp]\nrequired = ["a <= 1"]', "'dp'"),
        ("dp = 3", "'dp'"),
    ],
)
def test_what_is_no_policy_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=r"^mine\.toml: ") as refused:
        rules_in(text, "mine.toml", "pictures", has_dp=False)
    assert message in str(refused.value)


@given(st.text(max_size=60))
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    results: list[Rule] = []
    with suppress(BadInput):
        results = rules_in(text, "p", "rows", has_dp=True)
    assert len(decide(results, {})) == len(results)


def test_the_default_policy_has_rules_for_every_kind() -> None:
    for kind in ("pictures", "rows", "tensors"):
        for has_dp in (False, True):
            results = {rule.figure for rule in rules_in(default_text(), "", kind, has_dp=has_dp)}
            assert "refused_to_sign" in results
            assert ("epsilon" in results) == has_dp


def by_default(has_dp: bool, **figures: float) -> list[str]:
    rules = rules_in(default_text(), "", "pictures", has_dp=has_dp)
    result = decide(rules, {"refused_to_sign": 0, **figures})
    return [each.why.split()[0] for each in result if not each.met]


@claim(
    "default-open",
    "Without differential privacy the audit must find closest_record_ratio >= 0.9, copied_share "
    "<= 0.01, audit_auc <= 0.6, audit_tpr_at_1e-2 <= 0.05.",
)
def test_without_noise_each_figure_of_the_audit_must_be_there_and_good() -> None:
    good = {"closest_record_ratio": 0.9, "copied_share": 0.01, "audit_auc": 0.6}
    good["audit_tpr_at_1e-2"] = 0.05
    bad = {"closest_record_ratio": 0.89, "copied_share": 0.011, "audit_auc": 0.61}
    bad["audit_tpr_at_1e-2"] = 0.051
    assert by_default(False, **good) == []
    assert by_default(False) == list(good)
    for name, value in bad.items():
        assert by_default(False, **{**good, name: value}) == [name]


@claim(
    "default-dp",
    "epsilon <= 10 and delta <= 1e-3 must hold, canaries must not contradict them, and no audit "
    "may find copies.",
)
def test_with_noise_the_account_decides_and_what_was_measured_must_not_contradict() -> None:
    private = {"epsilon": 10.0, "delta": 1e-3}
    assert by_default(True, **private) == []
    assert by_default(True) == ["epsilon", "delta"]
    for bad in ({"epsilon": 10.1}, {"delta": 1.1e-3}, {"copied_share": 0.021}):
        assert by_default(True, **{**private, **bad}) == list(bad)
    assert by_default(True, **private, epsilon_lower_bound=10.1) == ["epsilon_lower_bound"]
    assert by_default(True, **private, closest_record_ratio=0.79) == ["closest_record_ratio"]


def test_a_policy_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        policy_text(tmp_path / "none.toml")
    (tmp_path / "long.toml").write_text("#" * 70_000)
    with pytest.raises(BadInput, match="is larger than"):
        policy_text(tmp_path / "long.toml")
