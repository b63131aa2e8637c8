"""From a policy to an optimizer: torch's own where torch has it, else pytorch-optimizer's.

How its state becomes tensors is in `model_state.py`.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from mdgan.gan.kept import KEPT, MOMENTUM, SLOW, Kept
from mdgan.gan.optimizer_settings import OPTIMIZER_NAMES, Policy
from mdgan.gan.registered_optimizers import kept_by_registered, make_registered


def kept_by(policy: Policy) -> Kept:
    """What the optimizer of a policy keeps, with Lookahead's slow weights."""
    own = policy.inner in KEPT
    kept = KEPT[policy.inner] if own else kept_by_registered(policy)
    if own and kept.moments == MOMENTUM and not policy.betas[0]:
        kept = kept._replace(moments=())
    return kept._replace(moments=(*kept.moments, SLOW)) if policy.looks_ahead else kept


def make_optimizer(model: nn.Module, policy: Policy) -> torch.optim.Optimizer:
    """The optimizer of a policy, for all parameters of a model."""
    optimizer = _make(policy, model.parameters())
    if not policy.looks_ahead:
        return optimizer
    from mdgan.gan.lookahead import Lookahead  # as below

    return Lookahead(optimizer)


def _make(policy: Policy, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if policy.inner in OPTIMIZER_NAMES.registered:
        return make_registered(parameters, policy)
    rates: dict[str, Any] = {"lr": policy.learning_rate, "weight_decay": policy.weight_decay}
    momentum: dict[str, Any] = {"momentum": policy.betas[0]}
    adaptive: dict[str, Any] = {"betas": policy.betas}
    if policy.epsilon is not None:
        adaptive["eps"] = policy.epsilon
    if policy.inner == "adam":  # its whole update fused into one kernel
        return torch.optim.Adam(parameters, **rates, **adaptive, fused=True)
    if policy.inner == "radam":
        return torch.optim.RAdam(parameters, **rates, **adaptive)
    if policy.inner == "sgd":
        return torch.optim.SGD(parameters, **rates, **momentum)
    # Only who uses these waits for the import, which in a fresh process takes 0.4 s.
    from pytorch_optimizer import LARS, AdaBelief, Lamb

    if policy.inner == "lars":
        return LARS(parameters, **rates, **momentum)
    if policy.inner == "adabelief":
        return AdaBelief(parameters, **rates, **adaptive)
    # Version 3 of LAMB's paper: no bias correction, and λx is part of what is scaled.
    return Lamb(parameters, **rates, **adaptive, weight_decouple=False, adam_debias=True)


def weights_replaced(optimizer: torch.optim.Optimizer) -> None:
    """The weights were replaced by others; moments stay, a Lookahead window begins anew."""
    if within(optimizer) is not optimizer:
        optimizer.begin_anew()  # type: ignore[attr-defined] # only Lookahead has another within


def within(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that takes single steps: of Lookahead the one inside, else itself."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner
