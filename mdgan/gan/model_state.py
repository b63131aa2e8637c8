"""A model and its optimizer as named tensors: one format for swaps, checkpoints and joining.

Settings such as the learning rate are not part of the state: they come with the run.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def part_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix; the prefix is cut off."""
    return {
        name.removeprefix(prefix): state[name]
        for name in state.keys()  # noqa: SIM118 - a TensorDict iterates over rows
        if name.startswith(prefix)
    }


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, with a prefix before every name."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def check_names(state: Mapping[str, Tensor], *prefixes: str) -> None:
    """Refuses a state that has parts besides those with the given prefixes.

    Raises:
        KeyError: a name begins with none of the prefixes.
    """
    foreign = sorted(name for name in state.keys() if not name.startswith(prefixes))  # noqa: SIM118 - a TensorDict iterates over rows
    if foreign:
        raise KeyError(f"tensors that do not fit: {foreign}")


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state by `<parameter>.<key>`; the tensors themselves, not copies."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


@torch.no_grad()
def load_model(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
) -> None:
    """Copies weights and moments in; keeps no reference to the given tensors.

    Args:
        model: takes over the weights and buffers.
        optimizer: over the model's parameters.
        weights: as `model.state_dict` names them.
        moments: as `optimizer_tensors` names them.

    Raises:
        KeyError, RuntimeError: a tensor is missing or has another shape or type; nothing changed.
    """
    _check_weights(weights, model.state_dict())
    by_parameter = _by_parameter(model, moments)
    model.load_state_dict(weights)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            key: _laid_out_like(parameter, value) for key, value in by_parameter[name].items()
        }


def _check_weights(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    if given.keys() != own.keys():
        raise KeyError(f"tensors that do not fit: {sorted(given.keys() ^ own.keys())}")
    for name, tensor in own.items():
        if given[name].shape != tensor.shape or given[name].dtype != tensor.dtype:
            raise RuntimeError(f"{name} is {_kind(given[name])}, not {_kind(tensor)}")


def _by_parameter(model: nn.Module, moments: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The moments of every parameter, checked to fit it."""
    sorted_out = {name: part_of(moments, f"{name}.") for name, _ in model.named_parameters()}
    kinds = {frozenset(own) for own in sorted_out.values() if own}
    if len(kinds) > 1 or sum(map(len, sorted_out.values())) != len(moments):
        raise KeyError("the optimizer state is incomplete, or of another model")
    for name, parameter in model.named_parameters():
        for key, value in sorted_out[name].items():
            fits = value.shape in ((), parameter.shape) and value.is_floating_point()
            if not fits:
                raise RuntimeError(f"{name}.{key} is {_kind(value)}, not {_kind(parameter)}")
    return sorted_out


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy on the parameter's device, in the parameter's memory layout."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
