"""How learning rates grow with the samples that an iteration learns from."""

from collections.abc import Callable
from math import isfinite, sqrt

from mdgan.errors import BadInput, reason_of
from mdgan.settings.names import Names

ScalingRule = Callable[[float], float]
"""From k, for k times the samples that rates are given for, to what rates are multiplied by."""

_OWN: dict[str, ScalingRule] = {
    "none": lambda _ratio: 1.0,
    "linear": lambda ratio: ratio,  # Goyal et al. 2017, section 2.1
    "sqrt": sqrt,  # Krizhevsky 2014, section 5
}
SCALING_RULE_NAMES = Names("scaling rule", *_OWN)


def rate_factor(rule: str, ratio: float) -> float:
    """What a rule of `SCALING_RULE_NAMES` multiplies rates by: 1, k, √k, or as the user's says."""
    if rule in _OWN:
        return _OWN[rule](ratio)
    asked = f"--lr-scaling {rule}: for {ratio:.4g} times the samples it"
    try:
        factor = float(SCALING_RULE_NAMES.registered[rule](ratio))
    except Exception as error:  # the user's own code may raise anything
        raise BadInput(f"{asked} fails: {type(error).__name__}: {reason_of(error)}") from error
    if not (isfinite(factor) and factor > 0):
        raise BadInput(f"{asked} gives {factor:g}; it must give a finite number above 0")
    return factor
