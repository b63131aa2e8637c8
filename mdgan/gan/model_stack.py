"""Computes several equal models at once: `torch.func` over stacked weights.

Shapes begin with R, the number of models that take part: [R, …].
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from mdgan.errors import one_line
from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.optimizers import TrainedModel

_STACKABLE = (torch.optim.Adam, torch.optim.RAdam, torch.optim.SGD)
"""Optimizers that keep all their state by parameter, so that one of them can step for many models.

Others have one count of steps for all parameters, but models may have taken different numbers.
"""


class CannotStack(ValueError):
    """These models cannot be stacked and must be computed one by one; the text says why."""


class Weights(NamedTuple):
    """Parameters and buffers of R models, by their names in the model, [R, …] each."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]


class ModelStack:
    """Equal models, each of which is one row of stacked weights.

    After `adopt` every model's parameters and buffers are views of its row. Code that reads them or
    writes to them in place, such as `Discriminator.load_state`, works as before.

    Raises:
        CannotStack: the models differ, or `_STACKABLE` does not list their optimizer.
    """

    def __init__(self, owners: Sequence[TrainedModel]) -> None:
        models = [owner.model for owner in owners]
        _check_alike(models)
        self._owners = list(owners)
        # Kept, because looking parameters up takes as long as computing a small model.
        self._named = {owner: dict(owner.model.named_parameters()) for owner in owners}
        # Not a copy: the copy of a model from `arithmetic.prepare` would call the original.
        self._template = models[0]
        self._parameters = _stacked([dict(model.named_parameters()) for model in models])
        self._buffers = _stacked([dict(model.named_buffers()) for model in models])
        self._learnt = [n for n, p in self._template.named_parameters() if p.requires_grad]
        self._optimizer = _one_for_all(owners)

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        return self._owners[0].device

    def rehearse(self, compute: Callable[[Weights], Tensor], *more_inputs: Tensor) -> None:
        """Tries to compute gradients with copies of all weights; raises CannotStack if that fails.

        The gradients are those of `compute(weights)`, a scalar, for weights and `more_inputs`.
        """
        copies = Weights(
            {name: stack.clone() for name, stack in self._parameters.items()},
            {name: stack.clone() for name, stack in self._buffers.items()},
        )
        learnt = self.learnt(copies)
        try:
            torch.autograd.backward(compute(copies), inputs=[*learnt, *more_inputs])
        except CannotStack:
            raise
        except Exception as error:  # torch may raise any error for a model
            raise CannotStack(f"{type(error).__name__}: {one_line(error)}") from error

    def adopt(self) -> None:
        """Makes every model's weights views of the stack."""
        for row, owner in enumerate(self._owners):
            for name, parameter in self._named[owner].items():
                parameter.data = self._parameters[name][row]
            for name, buffer in owner.model.named_buffers():
                buffer.data = self._buffers[name][row]

    def step(self, rows: Sequence[int], scale: float) -> None:
        """Takes one step of these models' own optimizers, all at once.

        Args:
            scale: the loss scale, by which gradients are divided first. A model with a gradient
                that is not finite steps with zeros.
        """
        chosen = []
        for row in rows:
            owner = self._owners[row]
            parameters, optimizer = self._named[owner].values(), owner.optimizer
            finite_or_zero([p.grad for p in parameters if p.grad is not None], scale)
            owner.clip()
            for parameter in parameters:
                chosen.append(parameter)
                # The model's own optimizer keeps the state; it may have loaded another since.
                self._optimizer.state[parameter] = optimizer.state[parameter]
        self._optimizer.param_groups[0]["params"] = chosen
        self._optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        self._optimizer.step()

    def outputs(self, weights: Weights, read: Callable[..., Any], *inputs: Tensor) -> Any:
        """Computes R models on their own inputs, [R, …] each; buffers change in place.

        Args:
            read: from one model's output and its inputs, makes a tensor or a tuple of tensors.

        Raises:
            CannotStack: the model puts another tensor in a buffer's place.
        """

        def compute(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], *inputs: Tensor
        ) -> tuple[Any, dict[str, Tensor]]:
            state = {**parameters, **buffers}
            output = torch.func.functional_call(self._template, state, inputs)
            return read(output, *inputs), {name: state[name] for name in buffers}

        vectorized: Any = torch.vmap(compute, randomness="different")
        results, new_buffers = vectorized(*weights, *inputs)
        for name, buffer in weights.buffers.items():
            if new_buffers[name].data_ptr() != buffer.data_ptr():
                raise CannotStack(f"{name} is replaced, not written to")
        return results

    def chosen(self, rows: Sequence[int]) -> Weights:
        """The weights of some models, without graph: copies, or for all models the stack's own."""
        parameters, buffers = self._parameters, self._buffers
        if len(rows) < len(self._owners):
            chosen = torch.tensor(rows, device=self.device)
            parameters = {name: stack[chosen] for name, stack in parameters.items()}
            buffers = {name: stack[chosen] for name, stack in buffers.items()}
        return Weights({name: stack.detach() for name, stack in parameters.items()}, buffers)

    def learnt(self, weights: Weights) -> list[Tensor]:
        """The trainable tensors among some weights; makes them require gradients."""
        return [weights.parameters[name].requires_grad_() for name in self._learnt]

    def put_back(self, rows: Sequence[int], weights: Weights) -> None:
        """Writes changed buffers back if they are copies; the stack's own changed in place."""
        if len(rows) < len(self._owners):
            chosen = torch.tensor(rows, device=self.device)
            for name, buffer in weights.buffers.items():
                self._buffers[name][chosen] = buffer

    def learn(
        self, rows: Sequence[int], weights: Weights, loss: Tensor, *, begin: bool = True
    ) -> None:
        """Adds the gradient of a loss, a scalar, to the present one; with `begin`, replaces it."""
        learnt = [weights.parameters[name] for name in self._learnt]
        # backward(), unlike grad(), gives gradients the memory layout of the weights.
        torch.autograd.backward(loss, inputs=learnt)
        self.put_back(rows, weights)
        self._put_gradients(rows, weights, begin=begin)

    @torch.no_grad()
    def _put_gradients(self, rows: Sequence[int], weights: Weights, *, begin: bool) -> None:
        present: list[Tensor] = []
        new: list[Tensor] = []
        stacks = {name: weights.parameters[name].grad for name in self._learnt}
        by_row = {name: g.unbind(0) for name, g in stacks.items() if g is not None}
        for place, row in enumerate(rows):
            for name, parameter in self._named[self._owners[row]].items():
                gradient = by_row[name][place] if name in by_row else None
                if begin or parameter.grad is None:
                    parameter.grad = gradient
                elif gradient is not None:
                    present.append(parameter.grad)
                    new.append(gradient)
        if present:
            torch._foreach_add_(present, new)


class FreshStack(ModelStack):
    """A stack in which all rows always learn together, with moments that begin at zero.

    Gradients and moments are stacks, too, and one optimizer steps for all models. The models' own
    optimizers give only its kind and settings; they must not clip.
    """

    def __init__(self, owners: Sequence[TrainedModel]) -> None:
        super().__init__(owners)
        for name, stack in self._parameters.items():
            if stack.dim() == len(("row", "outputs", "inputs")):
                # The layout of gradients of stacked linear layers; so they need not be copied.
                self._parameters[name] = stack.mT.contiguous().mT
        self._leaves = {name: nn.Parameter(self._parameters[name]) for name in self._learnt}
        make: Callable[..., torch.optim.Optimizer] = type(self._optimizer)
        self._optimizer = make([{**_group_of(self._optimizer), "params": [*self._leaves.values()]}])

    @override
    def learnt(self, weights: Weights) -> list[Tensor]:
        # Replaces the weights by the parameters of the optimizer.
        weights.parameters.update(self._leaves)
        return [*self._leaves.values()]

    def learn(
        self, rows: Sequence[int], weights: Weights, loss: Tensor, *, begin: bool = True
    ) -> None:
        del rows, weights  # all rows, and the leaves
        leaves = [*self._leaves.values()]
        if begin:
            for leaf in leaves:
                leaf.grad = None
        # Not grad(): the fused optimizer assumes that gradients are laid out as the weights are.
        torch.autograd.backward(loss, inputs=leaves)

    def step(self, rows: Sequence[int], scale: float) -> None:
        del rows
        assert scale == 1.0, "an overflow concerns one model alone"
        rate = self._owners[0].optimizer.param_groups[0]["lr"]  # the rate of this iteration
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.step()


def _stacked(tensors: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    names = tensors[0].keys()
    return {name: torch.stack([model[name].detach() for model in tensors]) for name in names}


def _group_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    (group,) = optimizer.param_groups
    return {name: value for name, value in group.items() if name != "params"}


def _check_alike(models: Sequence[nn.Module]) -> None:
    """Refuses models that differ in layers, their settings, names, shapes or types."""

    def described(model: nn.Module) -> tuple[str, list[tuple[Any, ...]]]:
        named = [*model.named_parameters(), *model.named_buffers()]
        return repr(model), [(n, t.shape, t.dtype, t.device, t.requires_grad) for n, t in named]

    first, *others = map(described, models)
    if any(other != first for other in others):
        raise CannotStack("their models differ")
    if not first[1]:
        raise CannotStack("their models have no weights")


def _one_for_all(owners: Sequence[TrainedModel]) -> torch.optim.Optimizer:
    """Makes one optimizer for all parameters, of the kind and settings that all models have."""
    first, *others = [owner.optimizer for owner in owners]
    make: Callable[..., torch.optim.Optimizer] = type(first)
    if any(type(other) is not make for other in others):
        raise CannotStack("their optimizers differ")
    if make not in _STACKABLE:
        raise CannotStack(f"{type(first).__name__} steps one model at a time")
    settings = _group_of(first)
    if any(_group_of(other) != settings for other in others):
        raise CannotStack("their optimizers have several settings")
    return make([{"params": [p for o in owners for p in o.model.parameters()], **settings}])
