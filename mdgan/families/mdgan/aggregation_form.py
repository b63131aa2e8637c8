"""The values of `--aggregation`: what becomes of feedback on the same batch."""

import re

from mdgan.gan.aggregation_form import ROBUST_FORMS, RobustRule, number_above_0, parse_robust_rule

AGGREGATION_FORMS = f"{ROBUST_FORMS}, f2u, f2a, f2a:LAMBDA"
_FORGIVING = re.compile(r"f2u|f2a(?::[0-9.eE+-]+)?")


class AggregationRule(RobustRule):
    """A rule, and its parameter: F of trimmed-mean and krum, C of clip, λ of f2a; 0 for others."""

    def __str__(self) -> str:
        return self.name if self == ("f2a", 1.0) else super().__str__()

    @property
    def needs_verdicts(self) -> bool:
        """Whether workers must also send their logits of every sample."""
        return self.name in ("f2u", "f2a")


def parse_aggregation(text: str) -> AggregationRule:
    """Reads an `--aggregation` value, or raises `ValueError`."""
    if not _FORGIVING.fullmatch(text):
        return AggregationRule(*parse_robust_rule(text, AGGREGATION_FORMS))
    name, has_number, given = text.partition(":")
    if not has_number:
        return AggregationRule(name, float(name == "f2a"))
    otherwise = "LAMBDA must be a number above 0; at 0 it is mean"
    return AggregationRule(name, number_above_0(given, otherwise))
