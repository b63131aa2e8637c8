"""From a policy to an optimizer: torch's own where torch has it, else pytorch-optimizer's.

How its state becomes tensors is in `model_state.py`.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.adam import adam

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


def take_step(optimizer: torch.optim.Optimizer, policy: Policy | None) -> None:
    """One step with the gradients that are in place: what `optimizer.step` does, to the last bit.

    In small models `Adam.step` takes longer than its kernel. So after the first step, which makes
    the moments, Adam's function is called as `Adam.step` would call it.

    Args:
        optimizer: takes the step.
        policy: that it was made by; None if it was made in another way.
    """
    group = optimizer.param_groups[0]
    trained = [p for p in group["params"] if p.grad is not None]
    if policy is None or policy.optimizer != "adam" or not all(map(optimizer.state.get, trained)):
        optimizer.step()
        return
    states = [optimizer.state[p] for p in trained]
    beta1, beta2 = group["betas"]
    with torch.no_grad():
        adam(
            trained,
            [p.grad for p in trained],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],  # of the variant amsgrad
            [state["step"] for state in states],
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
            fused=True,
        )


def use_rate_of(
    iteration: int, optimizer: torch.optim.Optimizer, policy: Policy | None, scale: float = 1.0
) -> None:
    """Sets the learning rate to that of an iteration; the first is 1.

    Args:
        iteration: i.
        optimizer: whose rate it is.
        policy: has the rate and its schedule; with None nothing changes.
        scale: what the rate is multiplied by besides.
    """
    if policy is None:
        return
    rate = scale * policy.learning_rate * policy.schedule.factor(iteration)
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip(parameters: Iterable[nn.Parameter], policy: Policy | None) -> None:
    """Scales gradients down to the policy's norm, all parameters' together, in place."""
    if policy is not None and policy.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, policy.clip_norm)


def weights_replaced(optimizer: torch.optim.Optimizer) -> None:
    """The weights were replaced by others; moments stay, a Lookahead window begins anew."""
    if within(optimizer) is not optimizer:
        optimizer.begin_anew()  # type: ignore[attr-defined] # only Lookahead has another within


def within(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that takes single steps: of Lookahead the one inside, else itself."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner
