"""Optimizers that the user's code registers: what they are called with, and what must hold of them.

All that an optimizer keeps must move in swaps and lie in checkpoints (`model_state.py`). So a
registered one is tried on a few weights first.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from mdgan.errors import BadInput, reason_of
from mdgan.gan.kept import COUNTS, Kept
from mdgan.gan.optimizer_settings import OPTIMIZER_NAMES, Policy
from mdgan.gan.randomness import RandomState

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Called with the parameters, `lr`, `betas`, `weight_decay`, and `eps` if the user gave one."""

_STEPS = 7
"""Enough for what begins late, such as the end of a short window."""


def make_registered(parameters: Any, policy: Policy) -> torch.optim.Optimizer:
    """The registered optimizer that a policy names."""
    numbers: dict[str, Any] = {"betas": policy.betas, "weight_decay": policy.weight_decay}
    if policy.epsilon is not None:
        numbers["eps"] = policy.epsilon
    make: MakeOptimizer = OPTIMIZER_NAMES.registered[policy.inner]
    return make(parameters, lr=policy.learning_rate, **numbers)


def kept_by_registered(policy: Policy) -> Kept:
    """What a registered optimizer keeps, found by steps with a few weights.

    Raises:
        BadInput: it fails, or keeps something that could not move in a swap.
    """
    name = policy.inner
    try:
        with RandomState(0, torch.device("cpu")).in_place():
            weights = [nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2))]
            optimizer = make_registered(weights, policy)
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise BadInput(f"optimizer {name}: gives {type(optimizer).__name__}, no Optimizer")
            before = _settings(optimizer)
            for _ in range(_STEPS):
                for weight in weights:
                    weight.grad = torch.full_like(weight, 0.1)
                optimizer.step()
            after = _settings(optimizer)
    except BadInput:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise BadInput(
            f"optimizer {name}: fails: {type(error).__name__}: {reason_of(error)}"
        ) from error
    moved = sorted(key for key in after if after[key] != before.get(key))
    if moved:
        raise BadInput(
            f"optimizer {name}: keeps {moved[0]!r} in param_groups, which does not move in a swap; "
            f"keep it in `state` of each parameter as a tensor, or call it {COUNTS[0]!r} if it "
            "counts steps"
        )
    _check_state(name, weights, optimizer)
    shapes = [(key, value.shape) for key, value in optimizer.state[weights[0]].items()]
    return Kept(
        tuple(key for key, shape in shapes if shape != ()),
        tuple(key for key, shape in shapes if shape == ()),
        COUNTS[0] in optimizer.param_groups[0],
    )


def _settings(optimizer: torch.optim.Optimizer) -> Mapping[str, Any]:
    (group,) = optimizer.param_groups
    return {key: repr(value) for key, value in group.items() if key not in ("params", COUNTS[0])}


def _check_state(name: str, weights: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    known = set(weights)
    for key in optimizer.state:
        if key not in known:
            raise BadInput(f"optimizer {name}: its state belongs to no parameter; keep it by those")
    for weight in weights:
        for key, value in optimizer.state[weight].items():
            tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
            if not tensor or value.shape not in ((), weight.shape):
                raise BadInput(
                    f"optimizer {name}: keeps {key!r} as {type(value).__name__}, which does not "
                    "move in a swap; keep floating-point tensors, one number or of the "
                    "parameter's shape"
                )
