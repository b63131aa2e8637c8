"""Makes optimizers from policies: torch's, pytorch-optimizer's, or one that the user registers.

All tensors that an optimizer keeps must move in swaps and be saved in checkpoints
(`model_state.py`). So this file lists them, and tries a registered optimizer on a few weights.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mdgan.errors import BadInput, users_code
from mdgan.gan.optimizer_settings import OPTIMIZER_NAMES, Policy
from mdgan.gan.randomness import RandomState

COUNTS = ("step", "counter")
"""Counts that optimizers keep in `param_groups`: of all steps, and within a Lookahead window."""
SLOW = "slow_params"  # Lookahead's weights at the beginning of a window
MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Called with the parameters, `lr`, `betas`, `weight_decay`, and `eps` if the user gave one."""

Network = tuple[nn.Module, Policy]  # a model, and how it is optimized
COPIES = 2  # weights and gradients; the optimizer's tensors come on top
_STEPS = 7  # enough to see tensors that appear late, such as at the end of a short window


class Kept(NamedTuple):
    """The names of the tensors that an optimizer keeps between steps."""

    moments: tuple[str, ...]  # one for each parameter, of its shape
    numbers: tuple[str, ...] = ()  # one number for each parameter
    counts_steps: bool = False  # whether it has one count of steps for all parameters

    @property
    def names(self) -> frozenset[str]:
        """The names of all tensors for each parameter."""
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
"""The tensors of each optimizer, by the name of its class in small letters."""
NUMBERS = frozenset(name for tensors in KEPT.values() for name in tensors.numbers)
"""The names of single numbers that optimizers keep for each parameter."""

_KNOWN_PACKAGES = ("torch", "pytorch_optimizer")


def kept_of(optimizer: torch.optim.Optimizer) -> Kept | None:
    """The tensors that an optimizer keeps; None if mdgan does not know it."""
    kind = type(optimizer)
    is_known = kind.__module__.partition(".")[0] in _KNOWN_PACKAGES
    return KEPT.get(kind.__name__.lower()) if is_known else None


def kept_by(policy: Policy) -> Kept:
    """The tensors that the optimizer of a policy keeps, with Lookahead's slow weights."""
    is_known = policy.inner in KEPT
    tensors = KEPT[policy.inner] if is_known else kept_by_registered(policy)
    if is_known and tensors.moments == MOMENTUM and not policy.betas[0]:
        tensors = tensors._replace(moments=())
    return tensors._replace(moments=(*tensors.moments, SLOW)) if policy.looks_ahead else tensors


def training_bytes(*networks: Network) -> int:
    """The bytes of models in training: weights, gradients, optimizer tensors, buffers."""
    total = 0
    for model, policy in networks:
        copies = COPIES + len(kept_by(policy).moments)
        total += copies * sum(p.nbytes for p in model.parameters())
        total += sum(b.nbytes for b in model.buffers())
    return total


def make_optimizer(model: nn.Module, policy: Policy) -> torch.optim.Optimizer:
    """Makes the optimizer of a policy, for all parameters of a model."""
    optimizer = _make(policy, model.parameters())
    if not policy.looks_ahead:
        return optimizer
    from mdgan.gan.lookahead import Lookahead  # as below

    return Lookahead(optimizer)


def _make(policy: Policy, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Makes the optimizer that takes single steps, without Lookahead."""
    rates: dict[str, Any] = {"lr": policy.learning_rate, "weight_decay": policy.weight_decay}
    momentum: dict[str, Any] = {"momentum": policy.betas[0]}
    adaptive: dict[str, Any] = {"betas": policy.betas}
    if policy.epsilon is not None:
        adaptive["eps"] = policy.epsilon
    if policy.inner in OPTIMIZER_NAMES.registered:
        make: MakeOptimizer = OPTIMIZER_NAMES.registered[policy.inner]
        return make(parameters, **rates, **adaptive)
    if policy.inner == "adam":  # its whole update fused into one kernel
        return torch.optim.Adam(parameters, **rates, **adaptive, fused=True)
    if policy.inner == "radam":
        return torch.optim.RAdam(parameters, **rates, **adaptive)
    if policy.inner == "sgd":
        return torch.optim.SGD(parameters, **rates, **momentum)
    # Imported only where it is used, since the import takes 0.4 s in a fresh process.
    from pytorch_optimizer import LARS, AdaBelief, Lamb

    if policy.inner == "lars":
        return LARS(parameters, **rates, **momentum)
    if policy.inner == "adabelief":
        return AdaBelief(parameters, **rates, **adaptive)
    # Version 3 of LAMB's paper: no bias correction, and the scaling includes λx.
    return Lamb(parameters, **rates, **adaptive, weight_decouple=False, adam_debias=True)


def weights_replaced(optimizer: torch.optim.Optimizer) -> None:
    """Tells an optimizer that its weights were replaced: Lookahead begins a new window."""
    if within(optimizer) is not optimizer:
        optimizer.begin_anew()  # type: ignore[attr-defined] # only Lookahead has another within


def within(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that takes single steps: the one inside Lookahead, or the optimizer itself."""
    return getattr(optimizer, "optimizer", optimizer)


def kept_by_registered(policy: Policy) -> Kept:
    """Finds the tensors that a registered optimizer keeps; refuses any that no swap can move."""
    name = policy.inner
    with users_code(f"optimizer {name}: fails"), RandomState(0, torch.device("cpu")).in_place():
        weights = [nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2))]
        optimizer = _make(policy, weights)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadInput(f"optimizer {name}", f"gives {type(optimizer).__name__}, no Optimizer")
        start = _settings(optimizer)
        for _ in range(_STEPS):
            for weight in weights:
                weight.grad = torch.full_like(weight, 0.1)
            optimizer.step()
        end = _settings(optimizer)
    changed = sorted(key for key in end if end[key] != start.get(key))
    if changed:
        raise BadInput(
            f"optimizer {name}",
            f"keeps {changed[0]!r} in param_groups, which does not move in a swap",
            f"keep it in `state` of each parameter as a tensor, or call it {COUNTS[0]!r} if it "
            "counts steps",
        )
    parameters = set(weights)
    if any(key not in parameters for key in optimizer.state):
        raise BadInput(f"optimizer {name}", "its state belongs to no parameter", "keep it by those")
    for weight in weights:
        for key, value in optimizer.state[weight].items():
            tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
            if not tensor or value.shape not in ((), weight.shape):
                why = f"keeps {key!r} as {type(value).__name__}, which does not move in a swap"
                way_out = "keep floating-point tensors, one number or of the parameter's shape"
                raise BadInput(f"optimizer {name}", why, way_out)
    shapes = [(key, value.shape) for key, value in optimizer.state[weights[0]].items()]
    return Kept(
        tuple(key for key, shape in shapes if shape != ()),
        tuple(key for key, shape in shapes if shape == ()),
        COUNTS[0] in optimizer.param_groups[0],
    )


def _settings(optimizer: torch.optim.Optimizer) -> Mapping[str, Any]:
    (group,) = optimizer.param_groups
    return {key: repr(value) for key, value in group.items() if key not in ("params", COUNTS[0])}


class TrainedModel:
    """A model in training mode, with the optimizer over its parameters.

    Args:
        policy: of the optimizer; None for a constant rate and gradients of any norm.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, policy: Policy | None = None
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        # Kept, because looking parameters up takes as long as computing a small layer.
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self._policy = policy
        is_adam = policy is not None and policy.optimizer == "adam"
        # One call of the kernel can update weights of one type on one device.
        self._is_adam = is_adam and len({(p.dtype, p.device) for p in self.parameters}) == 1
        self._together = torch.zeros(0)
        self._steps: list[Tensor] = []

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.parameters[0].device

    def at(self, iteration: int, scale: float = 1.0) -> None:
        """Sets the learning rate of an iteration, the first is 1, times a scale."""
        if self._policy is None:
            return
        rate = scale * self._policy.learning_rate * self._policy.schedule.factor(iteration)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def clip(self) -> None:
        """Scales all gradients together down to the policy's norm, if they exceed it."""
        if self._policy is not None and self._policy.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._policy.clip_norm)

    def step(self) -> None:
        """Takes one optimizer step with the gradients in the parameters, clipped.

        In small models `Adam.step` takes longer than its kernels. So after the first step, which
        makes the moments, this calls the kernels itself, with results equal to the last bit.
        """
        self.clip()
        states, (group,) = self.optimizer.state, self.optimizer.param_groups
        pairs = [(p, p.grad) for p in group["params"] if p.grad is not None]
        adam_states: list[Any] = [states.get(p) for p, _ in pairs] if self._is_adam else [None]
        if not all(adam_states):
            self.optimizer.step()
            return
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            steps = self._one_more(adam_states)
            torch._fused_adam_(
                [p for p, _ in pairs],
                [gradient for _, gradient in pairs],
                [state["exp_avg"] for state in adam_states],
                [state["exp_avg_sq"] for state in adam_states],
                [],  # only for amsgrad
                steps,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )

    def _one_more(self, adam_states: list[dict[str, Tensor]]) -> list[Tensor]:
        """Adds 1 to Adam's count of steps of each parameter; returns these counts."""
        steps = [state["step"] for state in adam_states]
        if len(steps) != len(self._steps) or not all(map(is_, steps, self._steps)):
            # Views of one tensor, so that one addition counts for all.
            self._together = torch.stack(steps)
            self._steps = steps = list(self._together.unbind())
            for state, count in zip(adam_states, steps, strict=True):
                state["step"] = count
        self._together += 1
        return steps
