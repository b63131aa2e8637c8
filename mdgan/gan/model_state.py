"""A model and its optimizer as named tensors: one format for swaps, checkpoints and newcomers.

Settings such as the learning rate are not part of the state: the run's settings have them.

Most optimizers keep everything by parameter. Those of pytorch-optimizer also count steps in
`param_groups`, and Lookahead holds the inner optimizer as another object. The state has all of it.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.gan.optimizers import COUNTS, NUMBERS, SLOW, kept_of, weights_replaced, within

_NEVER_NEGATIVE = (".exp_avg_sq", ".exp_avg_var", ".running_var", ".step")
_MISFIT = "the optimizer state is incomplete, or of another model"

State = Mapping[str, Tensor]  # the tensors by name


def part_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, under their names without it."""
    return {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, with a prefix before every name."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes, types and bits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(np.asarray(tensor.detach().cpu().reshape(-1).view(torch.uint8)).data)
    return digest.hexdigest()


def is_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether no tensor holds NaN or Inf, or would cause them at the next step.

    A negative value causes them where models and optimizers take a root (`_NEVER_NEGATIVE`).
    """
    for name, tensor in tensors.items():
        if tensor.numel():
            values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            least, greatest = torch.aminmax(values)  # NaN if one is; ten times as fast as isfinite
            if not (least.isfinite() and greatest.isfinite()):
                return False
            if name.endswith(_NEVER_NEGATIVE) and least < 0:
                return False
    return True


def check_names(state: Mapping[str, Tensor], *prefixes: str) -> None:
    """Refuses, by KeyError, a state with tensors whose names have none of the prefixes."""
    foreign = sorted(name for name in state if not name.startswith(prefixes))
    if foreign:
        raise KeyError(f"tensors that do not fit: {foreign}")


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state: `<parameter>.<key>`, the tensors themselves, and counts as `.<key>`.

    Counts of 0 are left out. (No parameter's name is empty.)
    """
    states = [one.state for one in dict.fromkeys((within(optimizer), optimizer))]
    (group,) = optimizer.param_groups
    return {
        **{
            f"{name}.{key}": value
            for name, parameter in model.named_parameters()
            for state in states
            for key, value in state.get(parameter, {}).items()
        },
        **{f".{key}": torch.tensor(group[key]) for key in COUNTS if group.get(key)},
    }


@torch.no_grad()
def load_model(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor] | None,
) -> None:
    """Copies weights and moments into a model and its optimizer.

    Without moments (None) the optimizer keeps its own, and a Lookahead window begins anew. If the
    moments are of another kind of optimizer, the optimizer begins anew, unless both keep the same
    tensors, as with and without Lookahead.

    Raises:
        KeyError, RuntimeError: a tensor is missing or has another shape or type; nothing changed.
    """
    expected = model.state_dict()
    if weights.keys() != expected.keys():
        raise KeyError(f"tensors that do not fit: {sorted(weights.keys() ^ expected.keys())}")
    for name, tensor in expected.items():
        if weights[name].shape != tensor.shape or weights[name].dtype != tensor.dtype:
            raise RuntimeError(f"{name} is {_kind(weights[name])}, not {_kind(tensor)}")
    if moments is not None:
        load_moments(model, optimizer, moments)
    model.load_state_dict(weights)
    if moments is None:
        weights_replaced(optimizer)


@torch.no_grad()
def load_moments(
    model: nn.Module, optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]
) -> None:
    """Copies moments as `load_model` does; weights stay."""
    _store(model, optimizer, _of_this_kind(optimizer, _sorted_out(model, optimizer, moments)))


class _OptimizerState(NamedTuple):
    """An optimizer's tensors by parameter and key, and its counts by key."""

    by_parameter: Mapping[str, Mapping[str, Tensor]]
    counts: Mapping[str, int]


def _sorted_out(
    model: nn.Module, optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]
) -> _OptimizerState:
    """Sorts moments by parameter, checks that they fit the model, and reads the counts."""
    by_parameter = {name: part_of(moments, f"{name}.") for name, _ in model.named_parameters()}
    counts = {key: moments[f".{key}"] for key in COUNTS if f".{key}" in moments}
    if sum(map(len, by_parameter.values())) + len(counts) != len(moments):
        raise KeyError(_MISFIT)
    for name, parameter in model.named_parameters():
        for key, value in by_parameter[name].items():
            shapes = _shapes(optimizer, parameter, key)
            if value.shape not in shapes or not value.is_floating_point():
                raise RuntimeError(f"{name}.{key} is {_kind(value)}, not {_kind(parameter)}")
    for key, value in counts.items():
        if value.shape != () or value.dtype != torch.int64 or value < 0:
            raise RuntimeError(f"{key} is {_kind(value)}, not a count")
    return _OptimizerState(by_parameter, {key: int(value) for key, value in counts.items()})


def _shapes(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, key: str
) -> tuple[tuple[int, ...], ...]:
    """The shapes that a tensor of an optimizer's state may have.

    A user's optimizer may keep single numbers under any name. Once it has taken a step, its own
    tensor says which shape is right.
    """
    if key in NUMBERS:
        return ((),)
    inner = within(optimizer)
    if kept_of(inner) is not None or key == SLOW:
        return (parameter.shape,)
    own = inner.state.get(parameter, {}).get(key)
    return (own.shape,) if isinstance(own, Tensor) else ((), parameter.shape)


def _of_this_kind(optimizer: torch.optim.Optimizer, state: _OptimizerState) -> _OptimizerState:
    """Returns the state if the optimizer keeps such tensors; otherwise an empty one."""
    by_parameter, counts = state
    have_slow = {SLOW in tensors for tensors in by_parameter.values()}
    kinds = {frozenset(tensors) - {SLOW} for tensors in by_parameter.values()} - {frozenset()}
    if len(kinds) > 1 or have_slow != {"counter" in counts}:
        raise KeyError(_MISFIT)
    expected = kept_of(within(optimizer))
    if expected is None:
        return state
    if not kinds:  # before the first step, or of an optimizer without momentum
        kept_counts = {k: n for k, n in counts.items() if k != "step" or expected.counts_steps}
        return state._replace(counts=kept_counts)
    fits = (kinds.pop(), "step" in counts) == (expected.names, expected.counts_steps)
    return state if fits else _OptimizerState({}, {})


def _store(model: nn.Module, optimizer: torch.optim.Optimizer, state: _OptimizerState) -> None:
    inner, (group,) = within(optimizer), optimizer.param_groups
    for name, parameter in model.named_parameters():
        tensors = {
            key: _laid_out_like(parameter, value)
            for key, value in state.by_parameter.get(name, {}).items()
        }
        slow = tensors.pop(SLOW, None)
        inner.state[parameter] = tensors
        if inner is not optimizer:
            optimizer.state.pop(parameter, None)
            if slow is not None:
                optimizer.state[parameter] = {SLOW: slow}
    if "step" in group or "step" in state.counts:
        group["step"] = state.counts.get("step", 0)
    if inner is not optimizer:
        group["counter"] = state.counts.get("counter", 0)


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy on the parameter's device, in the parameter's memory layout."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
