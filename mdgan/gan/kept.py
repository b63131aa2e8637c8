"""What mdgan's own optimizers keep between two steps."""

from typing import NamedTuple

import torch

COUNTS = ("step", "counter")
"""What optimizers count in `param_groups`: steps, and those of a Lookahead window."""
SLOW = "slow_params"
"""Lookahead's weights at the beginning of a window."""


class Kept(NamedTuple):
    """What an optimizer keeps."""

    moments: tuple[str, ...]
    """For each parameter, of its shape."""
    numbers: tuple[str, ...] = ()
    """For each parameter."""
    counts_steps: bool = False
    """Whether it counts its steps for all parameters together."""

    @property
    def names(self) -> frozenset[str]:
        """Of what it keeps for each parameter."""
        return frozenset((*self.moments, *self.numbers))


_ADAM = Kept(("exp_avg", "exp_avg_sq"), ("step",))
MOMENTUM = ("momentum_buffer",)
KEPT = {
    "adam": _ADAM,
    "radam": _ADAM,
    "adabelief": Kept(("exp_avg", "exp_avg_var"), counts_steps=True),
    "lars": Kept(MOMENTUM, counts_steps=True),
    "lamb": Kept(_ADAM.moments, ("weight_norm", "adam_norm", "trust_ratio"), counts_steps=True),
    "sgd": Kept(MOMENTUM),
}
"""By the optimizer's name, which is that of its class in small letters."""
NUMBERS = frozenset(name for kept in KEPT.values() for name in kept.numbers)
"""What optimizers keep of each parameter that has no shape."""

_OWN_HOMES = ("torch", "pytorch_optimizer")


def kept_of(optimizer: torch.optim.Optimizer) -> Kept | None:
    """What an optimizer keeps, if it is one that mdgan knows."""
    kind = type(optimizer)
    known = kind.__module__.partition(".")[0] in _OWN_HOMES
    return KEPT.get(kind.__name__.lower()) if known else None
