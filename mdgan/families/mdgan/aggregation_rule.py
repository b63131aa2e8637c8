"""Which rule puts the workers' feedback together, as a value; `aggregation_rules.py` applies it."""

import re
from math import inf
from typing import NamedTuple

from mdgan.settings.declare import shortest

AGGREGATION_FORMS = "mean, median, trimmed-mean:F, krum:F, clip:C, f2u, f2a, f2a:LAMBDA"
_FORM = re.compile(
    r"mean|median|(?:trimmed-mean|krum):[0-9]{1,9}|clip:[0-9.eE+-]+|f2u|f2a(?::[0-9.eE+-]+)?"
)


class AggregationRule(NamedTuple):
    """One rule.

    Attributes:
        name: mean, median, trimmed-mean, krum, clip, f2u or f2a.
        parameter: F of trimmed-mean and krum, C of clip, λ of f2a; 0 for the others.
    """

    name: str
    parameter: float = 0.0

    def __str__(self) -> str:
        """As the command line has it."""
        plain = self.name in ("mean", "median", "f2u") or self == ("f2a", 1.0)
        return self.name if plain else f"{self.name}:{shortest(self.parameter)}"

    @property
    def needs_verdicts(self) -> bool:
        """Whether workers must also send their logits of every sample."""
        return self.name in ("f2u", "f2a")

    @property
    def needs_workers(self) -> int:
        """How many workers there must be at the start for the rule to keep its promise."""
        if self.name == "mean" or self.needs_verdicts:
            return 1
        num_hostile = int(self.parameter) if self.name in ("trimmed-mean", "krum") else 1
        return 2 * num_hostile + (3 if self.name == "krum" else 1)

    def withstands(self, num_answers: int) -> int:
        """How many hostile answers among m the rule is made for, at most its F."""
        if self.name == "mean" or self.needs_verdicts:
            return 0
        most = (num_answers - (3 if self.name == "krum" else 1)) // 2
        if self.name in ("trimmed-mean", "krum"):
            most = min(most, int(self.parameter))
        return max(most, 0)


def parse_aggregation(text: str) -> AggregationRule:
    """Reads an `--aggregation` value.

    Args:
        text: mean, median, trimmed-mean:F, krum:F, clip:C, f2u, f2a or f2a:LAMBDA.

    Raises:
        ValueError: none of these, or a number out of range.
    """
    if not _FORM.fullmatch(text):
        raise ValueError(f"not one of {AGGREGATION_FORMS}")
    name, _, given = text.partition(":")
    try:
        parameter = float(given or (name == "f2a"))
    except ValueError:
        parameter = 0.0
    above_0 = 0 < parameter < inf
    if name == "clip" and not above_0:
        raise ValueError("C must be a number above 0")
    if name == "f2a" and not above_0:
        raise ValueError("LAMBDA must be a number above 0; at 0 it is mean")
    if name in ("trimmed-mean", "krum") and parameter < 1:
        raise ValueError("F must be at least 1; if no worker lies, use mean")
    return AggregationRule(name, parameter)
