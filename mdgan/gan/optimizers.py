"""From a policy to an optimizer: torch's own, pytorch-optimizer's, or one that the user registers.

All that an optimizer keeps must move in swaps and lie in checkpoints (`model_state.py`). So it is
known here of each, and a registered one is tried on a few weights first.
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
"""What optimizers count in `param_groups`: steps, and those of a Lookahead window."""
SLOW = "slow_params"  # Lookahead's weights at the beginning of a window
MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Called with the parameters, `lr`, `betas`, `weight_decay`, and `eps` if the user gave one."""

Network = tuple[nn.Module, Policy]  # a model, and how it is optimized
COPIES = 2  # weights and gradients; what the optimizer keeps comes on top
_STEPS = 7  # enough for what begins late, such as the end of a short window


class Kept(NamedTuple):
    """What an optimizer keeps."""

    moments: tuple[str, ...]  # for each parameter, of its shape
    numbers: tuple[str, ...] = ()  # for each parameter
    counts_steps: bool = False  # whether it counts its steps for all parameters together

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


def kept_by(policy: Policy) -> Kept:
    """What the optimizer of a policy keeps, with Lookahead's slow weights."""
    is_known = policy.inner in KEPT
    kept = KEPT[policy.inner] if is_known else kept_by_registered(policy)
    if is_known and kept.moments == MOMENTUM and not policy.betas[0]:
        kept = kept._replace(moments=())
    return kept._replace(moments=(*kept.moments, SLOW)) if policy.looks_ahead else kept


def training_bytes(*networks: Network) -> int:
    """What models in training take: weights, gradients, what their optimizers keep, buffers."""
    total = 0
    for model, policy in networks:
        copies = COPIES + len(kept_by(policy).moments)
        total += copies * sum(p.nbytes for p in model.parameters())
        total += sum(b.nbytes for b in model.buffers())
    return total


def make_optimizer(model: nn.Module, policy: Policy) -> torch.optim.Optimizer:
    """The optimizer of a policy, for all parameters of a model."""
    optimizer = _make(policy, model.parameters())
    if not policy.looks_ahead:
        return optimizer
    from mdgan.gan.lookahead import Lookahead  # as below

    return Lookahead(optimizer)


def _make(policy: Policy, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
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
    return getattr(optimizer, "optimizer", optimizer)


def kept_by_registered(policy: Policy) -> Kept:
    """What a registered optimizer keeps, found by steps; refuses what cannot move in a swap."""
    name = policy.inner
    with users_code(f"optimizer {name}: fails"), RandomState(0, torch.device("cpu")).in_place():
        weights = [nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2))]
        optimizer = _make(policy, weights)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadInput(f"optimizer {name}", f"gives {type(optimizer).__name__}, no Optimizer")
        before = _settings(optimizer)
        for _ in range(_STEPS):
            for weight in weights:
                weight.grad = torch.full_like(weight, 0.1)
            optimizer.step()
        after = _settings(optimizer)
    moved = sorted(key for key in after if after[key] != before.get(key))
    if moved:
        raise BadInput(
            f"optimizer {name}",
            f"keeps {moved[0]!r} in param_groups, which does not move in a swap",
            f"keep it in `state` of each parameter as a tensor, or call it {COUNTS[0]!r} if it "
            "counts steps",
        )
    known = set(weights)
    if any(key not in known for key in optimizer.state):
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
        policy: that the optimizer was made by; None for a constant rate and gradients of any norm.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, policy: Policy | None = None
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        # Looking things up in a model takes as long as computing a small layer.
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self._policy = policy
        is_adam = policy is not None and policy.optimizer == "adam"
        # One call of a kernel is for weights of one kind.
        self._is_adam = is_adam and len({(p.dtype, p.device) for p in self.parameters}) == 1
        self._together = torch.zeros(0)
        self._steps: list[Tensor] = []

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.parameters[0].device

    def at(self, iteration: int, scale: float = 1.0) -> None:
        """The learning rate becomes that of an iteration, the first is 1, times a scale."""
        if self._policy is None:
            return
        rate = scale * self._policy.learning_rate * self._policy.schedule.factor(iteration)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def clip(self) -> None:
        """Scales the gradients that are in place down to the policy's norm, all together."""
        if self._policy is not None and self._policy.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._policy.clip_norm)

    def step(self) -> None:
        """One optimizer step with the gradients that are in place, clipped.

        In small models `Adam.step` takes longer than its kernels. So after the first step, which
        makes the moments, these are called as `Adam.step` would call them, to the last bit.
        """
        self.clip()
        states, (group,) = self.optimizer.state, self.optimizer.param_groups
        pairs = [(p, p.grad) for p in group["params"] if p.grad is not None]
        kept: list[Any] = [states.get(p) for p, _ in pairs] if self._is_adam else [None]
        if not all(kept):
            self.optimizer.step()
            return
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            steps = self._one_more(kept)
            torch._fused_adam_(
                [p for p, _ in pairs],
                [gradient for _, gradient in pairs],
                [own["exp_avg"] for own in kept],
                [own["exp_avg_sq"] for own in kept],
                [],  # of the variant amsgrad
                steps,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )

    def _one_more(self, kept: list[dict[str, Tensor]]) -> list[Tensor]:
        """Counts a step in what Adam keeps of each parameter; returns these counts."""
        steps = [own["step"] for own in kept]
        if len(steps) != len(self._steps) or not all(map(is_, steps, self._steps)):
            # Views of one tensor, so that one addition counts for all.
            self._together = torch.stack(steps)
            self._steps = steps = list(self._together.unbind())
            for own, count in zip(kept, steps, strict=True):
                own["step"] = count
        self._together += 1
        return steps
