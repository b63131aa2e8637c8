"""The optimization policy of each of the two networks: optimizer, schedule and clipping.

Learning rates are pure functions of the iteration, so schedules need neither messages nor saving.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import cos, inf, isfinite, pi, sqrt
from typing import Any

from mdgan.errors import BadInput, users_code
from mdgan.settings.declare import ValueKind, number, one_of, shortest, suggest, whole
from mdgan.settings.layers import joined, parts_of
from mdgan.settings.names import Names
from mdgan.spelling import flag

OPTIMIZERS = ("adam", "radam", "adabelief", "lars", "lamb", "sgd")
LOOKAHEAD = "lookahead:"
"""Stands before the name of the optimizer that takes the steps within a window."""

OPTIMIZER_NAMES = Names("optimizer", *OPTIMIZERS, prefix=LOOKAHEAD)
_WITH_MOMENTUM_ALONE = ("lars", "sgd")
_OF_SQUARES = {"beta2", "epsilon"}
SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class RateSchedule:
    """How the learning rate changes over iterations, as a part of the policy's rate."""

    shape: str = "constant"  # how the rate falls after the warmup; one of `SCHEDULES`
    warmup: int = 0
    """W, the first iterations, in which the rate rises from 1/W to the whole rate."""
    num_iterations: int = 1  # I; a falling rate reaches 0 after it

    def factor(self, iteration: int) -> float:
        """The part of the learning rate in an iteration, in [0, 1]; the first iteration is 1.

        t = (i − W − 1) / (I − W) is the part of the iterations after the warmup that precede
        iteration i. The result is 1 − t (linear) or (1 + cos πt) / 2 (cosine, without restarts:
        Loshchilov and Hutter 2017, equation 5).
        """
        i = max(iteration, 1)
        if i <= self.warmup:
            return i / self.warmup
        if self.shape == "constant":
            return 1.0
        t = min((i - self.warmup - 1) / max(self.num_iterations - self.warmup, 1), 1.0)
        return 1 - t if self.shape == "linear" else (1 + cos(pi * t)) / 2


@dataclass(frozen=True)
class Policy:
    """The optimization policy of one network (ParaGAN, section 5.2)."""

    optimizer: str = "adam"  # one of `OPTIMIZER_NAMES`, or `lookahead:` and one of them
    learning_rate: float = 2e-4  # before the schedule
    # β1, which is the momentum of `lars` and `sgd`, and β2.
    betas: tuple[float, float] = (0.5, 0.999)
    epsilon: float | None = None  # ε; None for the optimizer's default
    weight_decay: float = 0.0  # λ, as the optimizer's paper uses it
    # The largest L2 norm of the gradient of all weights; None for any.
    clip_norm: float | None = None
    schedule: RateSchedule = field(default_factory=RateSchedule)

    @property
    def inner(self) -> str:
        """The optimizer that takes single steps, one of `OPTIMIZER_NAMES`."""
        return self.optimizer.removeprefix(LOOKAHEAD)

    @property
    def looks_ahead(self) -> bool:
        """Whether Lookahead is around the optimizer."""
        return self.optimizer.startswith(LOOKAHEAD)


_DECAY = number(lambda beta: 0 <= beta < 1, "must be in [0, 1)")
_KEYS = {
    "lr": number(lambda lr: 0 < lr < inf, "must be above 0"),
    "beta1": _DECAY,
    "beta2": _DECAY,
    "epsilon": number(lambda e: 0 < e < inf, "must be above 0, or steps divide by 0"),
    "weight_decay": number(lambda decay: 0 <= decay < inf, "must be 0 or more"),
    "clip_norm": number(
        lambda norm: 0 < norm < inf, "must be above 0; leave it out to clip nothing"
    ),
    "schedule": one_of(*SCHEDULES),
    "warmup": whole(0),
}
_DEFAULTS: dict[str, Any] = {"lr": 2e-4, "beta1": 0.5, "beta2": 0.999}
OPTIMIZER_KEYS = (
    "lr (2e-4), beta1 (0.5; the momentum of sgd and lars), beta2 (0.999), epsilon, weight_decay, "
    "clip_norm (largest norm of the gradient), schedule (constant, linear, cosine: how lr falls) "
    "and warmup (first iterations, in which lr rises)"
)


@dataclass(frozen=True)
class OptimizerForm:
    """One optimizer as users write it, `adam:lr=2e-4,beta1=0`: its name and values of `_KEYS`."""

    name: str
    values: tuple[tuple[str, float | int | str], ...]

    def __str__(self) -> str:
        """The text of a flag, complete enough to mean the same whatever the defaults are."""
        return joined(
            self.name, {key: shortest(v) if isinstance(v, float) else v for key, v in self.values}
        )

    @classmethod
    def parse(cls, text: str) -> "OptimizerForm":
        """Reads `NAME:KEY=VALUE,…`, in which the name or the keys may be missing; or ValueError."""
        name, texts = parts_of(text)
        name = str(OPTIMIZER_NAMES.setting().convert(name or OPTIMIZERS[0]))
        inner, has_beta2 = name.removeprefix(LOOKAHEAD), "beta2" in texts
        values: dict[str, Any] = {**_DEFAULTS}
        for key, value in texts.items():
            kind = _KEYS.get(key)
            if kind is None:
                raise ValueError(f"{key}: must be one of {', '.join(_KEYS)}{suggest(key, _KEYS)}")
            try:
                number = kind.type(value)
            except ValueError as error:
                raise ValueError(f"{key}={value} is no number") from error
            try:
                values[key] = kind.read(number, ...)
            except ValueError as error:
                raise ValueError(f"{key}={value} {error}") from error
        if inner in _WITH_MOMENTUM_ALONE:
            if not has_beta2:
                del values["beta2"]
            for key in values.keys() & _OF_SQUARES:
                raise ValueError(f"{name} has no use for {key}; leave it out")
        if inner == "adabelief" and values["beta1"] == 0:
            raise ValueError(
                "divides by how far gradients are from their mean, which is 0 with beta1=0; give "
                "beta1=0.5, or another optimizer"
            )
        return cls(name, tuple((key, values[key]) for key in _KEYS if key in values))

    def policy(self, num_iterations: int) -> Policy:
        """The policy of a network in a run of this many iterations."""
        values: dict[str, Any] = {"beta2": _DEFAULTS["beta2"], **dict(self.values)}
        schedule = RateSchedule(
            values.get("schedule", SCHEDULES[0]), values.get("warmup", 0), num_iterations
        )
        return Policy(
            self.name,
            values["lr"],
            (values["beta1"], values["beta2"]),
            epsilon=values.get("epsilon"),
            weight_decay=values.get("weight_decay", 0.0),
            clip_norm=values.get("clip_norm"),
            schedule=schedule,
        )


OPTIMIZER = ValueKind(
    str,
    OptimizerForm.parse,
    known=lambda _others: OPTIMIZER_NAMES.all,
    grows=True,
    is_keyed=True,
    unused=lambda name: (
        _OF_SQUARES if name.removeprefix(LOOKAHEAD) in _WITH_MOMENTUM_ALONE else set()
    ),
    several=True,
)

ScalingRule = Callable[[float], float]
"""From k, when a step has k times the samples that rates are meant for, to a factor of rates."""

_SCALING_RULES: dict[str, ScalingRule] = {
    "none": lambda _ratio: 1.0,
    "linear": lambda ratio: ratio,  # Goyal et al. 2017, section 2.1
    "sqrt": sqrt,  # Krizhevsky 2014, section 5
}
SCALING_RULE_NAMES = Names("scaling rule", *_SCALING_RULES)


def rate_factor(rule: str, ratio: float) -> float:
    """The factor of rates by a rule of `SCALING_RULE_NAMES`: 1, k, √k, or the user's function."""
    if rule in _SCALING_RULES:
        return _SCALING_RULES[rule](ratio)
    asked = f"{flag('lr_scaling', rule)}: for {ratio:.4g} times the samples it"
    with users_code(f"{asked} fails"):
        factor = float(SCALING_RULE_NAMES.registered[rule](ratio))
    if not (isfinite(factor) and factor > 0):
        raise BadInput(f"{asked} gives {factor:g}; it must give a finite number above 0")
    return factor
