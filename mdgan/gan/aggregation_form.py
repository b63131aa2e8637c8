"""The names of the rules in `aggregation_rules.py`, and how many hostile answers each outvotes."""

import re
from math import inf
from typing import NamedTuple

from mdgan.errors import BadInput
from mdgan.settings.declare import shortest
from mdgan.spelling import flag

ROBUST_FORMS = "mean, median, trimmed-mean:F, krum:F, clip:C"
AGGREGATION_FORMS = f"{ROBUST_FORMS}, f2u, f2a, f2a:LAMBDA"
_FORM = re.compile(r"mean|median|(?:trimmed-mean|krum):[0-9]{1,9}|clip:[0-9.eE+-]+")
_FORGIVING = re.compile(r"f2u|f2a(?::[0-9.eE+-]+)?")


class AggregationRule(NamedTuple):
    """One aggregation rule, as the user names it."""

    name: str  # mean, median, trimmed-mean, krum or clip; or f2u or f2a, which trust all workers
    parameter: float = 0.0  # F of trimmed-mean and krum, C of clip, λ of f2a; 0 for the others

    def __str__(self) -> str:
        has_parameter = self.parameter and self != ("f2a", 1.0)
        return f"{self.name}:{shortest(self.parameter)}" if has_parameter else self.name

    @property
    def needs_verdicts(self) -> bool:
        """Whether workers must also send their logits of every sample."""
        return self.name in ("f2u", "f2a")

    @property
    def outvotes(self) -> int:
        """How many hostile answers the rule outvotes at least, if there are enough answers."""
        if self.name in ("trimmed-mean", "krum"):
            return int(self.parameter)
        return int(self.name in ("median", "clip"))

    @property
    def needs_answers(self) -> int:
        """How many answers there must be for the rule to keep its promise."""
        return 2 * self.outvotes + (3 if self.name == "krum" else 1)

    def withstands(self, num_answers: int) -> int:
        """How many hostile answers among m the rule withstands, at most its F."""
        most = (num_answers - (3 if self.name == "krum" else 1)) // 2
        if self.name in ("trimmed-mean", "krum"):
            most = min(most, int(self.parameter))
        return max(most, 0) if self.outvotes else 0

    def check_enough(self, num_answers: int, *, of: str = "workers", more: str = "more") -> None:
        """Refuses a run that begins with too few answers for the rule to outvote that many."""
        if num_answers < self.needs_answers:
            raise BadInput(
                flag("aggregation", self),
                f"needs at least {self.needs_answers} {of} to outvote {self.outvotes}, not "
                f"{num_answers}",
                f"use {more}, a smaller F, or mean",
            )


MEDIAN = AggregationRule("median")


def parse_robust_rule(text: str, forms: str = ROBUST_FORMS) -> AggregationRule:
    """Reads a rule of `ROBUST_FORMS`; raises ValueError, which lists `forms`, at any other text."""
    if not _FORM.fullmatch(text):
        raise ValueError(f"not one of {forms}")
    name, _, number = text.partition(":")
    parameter = number_above_0(number, "C must be a number above 0") if name == "clip" else 0.0
    if name in ("trimmed-mean", "krum"):
        parameter = float(number)
        if parameter < 1:
            raise ValueError("F must be at least 1; if no worker lies, use mean")
    return AggregationRule(name, parameter)


def parse_aggregation(text: str) -> AggregationRule:
    """Reads a rule, one of `AGGREGATION_FORMS`, or raises `ValueError`."""
    if not _FORGIVING.fullmatch(text):
        return parse_robust_rule(text, AGGREGATION_FORMS)
    name, has_number, number = text.partition(":")
    if not has_number:
        return AggregationRule(name, float(name == "f2a"))
    otherwise = "LAMBDA must be a number above 0; at 0 it is mean"
    return AggregationRule(name, number_above_0(number, otherwise))


def number_above_0(text: str, otherwise: str) -> float:
    """Reads a finite number above 0; raises ValueError, with that message, at any other."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise ValueError(otherwise)
    return number
