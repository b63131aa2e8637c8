"""Thresholds that decide whether what a run made may leave it: a TOML file of rules.

A rule is `FIGURE <= 3`, `FIGURE >= 2 * OTHER`, with `if known` at its end if it only counts where
the figure was measured. Rules stand in the list `require`, at the top for all, and in the tables
`[pictures]`, `[rows]`, `[tensors]` for one kind of sample, `[dp]` and `[no_dp]` for runs with and
without differential privacy.
"""

import operator
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from mdgan.errors import BadInput, reason_of
from mdgan.storage.foreign_file import read_given

DP, NO_DP = "dp", "no_dp"
SECTIONS = ("pictures", "rows", "tensors", DP, NO_DP)
_MOST_BYTES = 1 << 14
"""Time to read a name of many parts grows with their square."""
_NUMBER, _NAME = r"[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?", r"[a-z][a-z0-9_-]*"
_RULE = re.compile(
    rf"({_NAME}) *(<=|>=) *(?:({_NUMBER})(?: *\* *({_NAME}))?|({_NAME}))( +if +known)?"
)
_COMPARE = {"<=": operator.le, ">=": operator.ge}


class Rule(NamedTuple):
    """FIGURE is compared with a factor times another figure, or with the factor alone."""

    text: str
    figure: str
    compare: str
    factor: float
    other: str
    if_known: bool


class RuleVerdict(NamedTuple):
    """What a rule says of some figures; `why` is one line with the rule and the figures."""

    met: bool
    why: str


def default_text() -> str:
    """The policy for those that have none of their own; docs/release.md has its reasons."""
    return (files("mdgan.records") / "release_policy.toml").read_text("utf-8")


def policy_text(path: Path | None) -> str:
    """The text of a policy file, or of the default one; raises BadInput."""
    if path is None:
        return default_text()
    try:
        return read_given(path, _MOST_BYTES).decode()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise BadInput(path, f"cannot be read ({reason})", "name a policy") from error


def rules_in(text: str, where: str, kind: str, *, has_dp: bool) -> list[Rule]:
    """The rules of a policy that count for one kind of sample, with or without privacy.

    Args:
        where: the policy's file, for messages.

    Raises:
        BadInput: it is no policy; the line names what cannot be read.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of too many digits, too
        raise BadInput(where, f"is no TOML ({reason_of(error)})") from error
    found = _rules(content.pop("require", []), where)
    for name, section in content.items():
        if name not in SECTIONS or not isinstance(section, dict) or set(section) - {"require"}:
            known = ", ".join(f"[{each}]" for each in SECTIONS)
            raise BadInput(where, f"{name!r:.60}: a policy has `require`, here and in {known}")
        rules = _rules(section.get("require", []), where)
        found += rules if name in (kind, DP if has_dp else NO_DP) else []
    return found


def _rules(given: object, where: str) -> list[Rule]:
    if not isinstance(given, list):
        raise BadInput(where, f"require = {given!r:.60}: must be a list of rules")
    return [_rule(each, where) for each in given]


def _rule(given: object, where: str) -> Rule:
    match = _RULE.fullmatch(given.strip()) if isinstance(given, str) else None
    if match is None:
        raise BadInput(where, f"{given!r:.80}: a rule is like `epsilon <= 3` or `fid <= 2 * floor`")
    figure, compare, factor, times, alone, known = match.groups()
    other = times or alone or ""
    return Rule(
        match[0], figure, compare, factor=float(factor or 1), other=other, if_known=bool(known)
    )


def decide(rules: Sequence[Rule], figures: Mapping[str, float]) -> list[RuleVerdict]:
    """What each rule says, by those figures that are known."""
    return [_decided(rule, figures) for rule in rules]


def _decided(rule: Rule, figures: Mapping[str, float]) -> RuleVerdict:
    unknown = [name for name in (rule.figure, rule.other) if name and name not in figures]
    if unknown:
        why = f"{rule.text}: {' and '.join(unknown)} not known"
        return RuleVerdict(rule.if_known, why)
    value, bound = figures[rule.figure], rule.factor
    beside = f"{rule.figure} = {value:.4g}"
    if rule.other:
        bound *= figures[rule.other]
        beside += f", {rule.other} = {figures[rule.other]:.4g}"
    return RuleVerdict(_COMPARE[rule.compare](value, bound), f"{rule.text}: {beside}")
