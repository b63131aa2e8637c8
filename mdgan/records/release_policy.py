"""Reads a release policy, a TOML file of rules, and decides by it whether a run may be released.

A rule is like `FIGURE <= 3` or `FIGURE >= 2 * OTHER`; with `if known` at its end, it counts only
where the figure was measured. A list `require` holds rules: at the top for all runs, in the tables
`[pictures]`, `[rows]` and `[tensors]` for one kind of sample, in `[dp]` and `[no_dp]` for runs with
and without differential privacy.
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
"""A small limit, as the time to read a name of many parts grows with the square of their number."""
_NUMBER, _NAME = r"[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?", r"[a-z][a-z0-9_-]*"
_RULE = re.compile(
    rf"({_NAME}) *(<=|>=) *(?:({_NUMBER})(?: *\* *({_NAME}))?|({_NAME}))( +if +known)?"
)
_COMPARE = {"<=": operator.le, ">=": operator.ge}


class Rule(NamedTuple):
    """Compares a figure with `factor` times another figure, or with `factor` alone."""

    text: str
    figure: str
    compare: str
    factor: float
    other: str
    if_known: bool


class RuleVerdict(NamedTuple):
    """Whether some figures meet a rule; `why` is one line with the rule and the figures."""

    met: bool
    why: str


def default_text() -> str:
    """The default policy; docs/release.md explains its limits."""
    return (files("mdgan.records") / "release_policy.toml").read_text("utf-8")


def policy_text(path: Path | None) -> str:
    """The text of a policy file, or the default policy; BadInput if the file cannot be read."""
    if path is None:
        return default_text()
    try:
        return read_given(path, _MOST_BYTES).decode()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise BadInput(path, f"cannot be read ({reason})", "name a policy") from error


def rules_in(text: str, where: str, kind: str, *, has_dp: bool) -> list[Rule]:
    """The rules of a policy that apply to a kind of sample, with or without differential privacy.

    Args:
        where: the policy's file, for messages.

    Raises:
        BadInput: the text is no policy; the line names the part that is wrong.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of too many digits, too
        raise BadInput(where, f"is no TOML ({reason_of(error)})") from error
    applicable = _rules(content.pop("require", []), where)
    for name, section in content.items():
        if name not in SECTIONS or not isinstance(section, dict) or set(section) - {"require"}:
            allowed = ", ".join(f"[{section}]" for section in SECTIONS)
            raise BadInput(where, f"{name!r:.60}: a policy has `require`, here and in {allowed}")
        rules = _rules(section.get("require", []), where)
        applicable += rules if name in (kind, DP if has_dp else NO_DP) else []
    return applicable


def _rules(texts: object, where: str) -> list[Rule]:
    if not isinstance(texts, list):
        raise BadInput(where, f"require = {texts!r:.60}: must be a list of rules")
    return [_rule(text, where) for text in texts]


def _rule(text: object, where: str) -> Rule:
    match = _RULE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise BadInput(where, f"{text!r:.80}: a rule is like `epsilon <= 3` or `fid <= 2 * floor`")
    figure, compare, factor, other_times, other_alone, if_known = match.groups()
    other = other_times or other_alone or ""
    return Rule(
        match[0], figure, compare, factor=float(factor or 1), other=other, if_known=bool(if_known)
    )


def decide(rules: Sequence[Rule], figures: Mapping[str, float]) -> list[RuleVerdict]:
    """Applies each rule to the known figures."""
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
