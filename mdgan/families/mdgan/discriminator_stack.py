"""Several discriminators with equal models, computed at once: `torch.func` over stacked weights.

Shapes are written [R, b, C, H, W]: a batch of b samples for each of R of the discriminators.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples, inputs
from mdgan.gan.losses import Verdict, as_verdict

_STACKABLE = (torch.optim.Adam, torch.optim.RAdam, torch.optim.SGD)
"""Optimizers that keep all their state by parameter, so that one can step with the state of many.

Others count steps for all their parameters together, and workers may have taken different numbers.
"""


Loss = Callable[[Verdict, Tensor | None], Tensor]
"""From what one discriminator says of a batch, and the labels if it is conditional, to a scalar."""

Penalty = Callable[[Tensor, Tensor], Tensor]
"""From logits, [R, b], and the batch that they are of, [R, b, C, H, W], to [R]."""


class CannotStack(ValueError):
    """These discriminators must be computed one by one; the text says why."""


class _Weights(NamedTuple):
    """Parameters and buffers of R discriminators, by their names in the model, [R, …] each."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]


class DiscriminatorStack:
    """Equal models, one row each of stacked weights.

    After `adopt` every discriminator's parameters and buffers are views of its row. Code that reads
    them or writes to them in place, such as `Discriminator.load_state`, works as before.

    Args:
        discriminators: at least one.

    Raises:
        CannotStack: they differ, or their optimizer is none that `_STACKABLE` lists.
    """

    def __init__(self, discriminators: Sequence[Discriminator]) -> None:
        _check_alike(discriminators)
        self._discriminators = list(discriminators)
        # Kept, because looking parameters up in a model takes as long as computing a small one.
        self._named = {d: dict(d.model.named_parameters()) for d in discriminators}
        # Not a copy: the copy of a model from `arithmetic.prepare` would call the original.
        self._template = discriminators[0].model
        models = [discriminator.model for discriminator in discriminators]
        self._parameters = _stacked([dict(model.named_parameters()) for model in models])
        self._buffers = _stacked([dict(model.named_buffers()) for model in models])
        self._learnt = [n for n, p in self._template.named_parameters() if p.requires_grad]
        self._optimizer = _one_for_all(discriminators)

    @property
    def device(self) -> torch.device:
        """Where the models live."""
        return next(self._template.parameters()).device

    def rehearse(self, batch: Samples, loss: Loss, penalty: Penalty | None = None) -> None:
        """Computes gradients with copies of all weights, to see whether that works.

        Args:
            batch: of any content, [W, b, C, H, W] for all W discriminators.
            loss: any.
            penalty: see `learn`.

        Raises:
            CannotStack: it does not work.
        """
        parameters, buffers = _tensors(self._parameters.clone()), _tensors(self._buffers.clone())
        learnt = [parameters[name].requires_grad_() for name in self._learnt]
        images = batch.images.detach().requires_grad_()
        try:
            weights = _Weights(parameters, buffers)
            losses, logits, after = self._losses(weights, batch.of(images), loss)
            if penalty is not None:
                losses = losses + penalty(logits, images)
            torch.autograd.backward(losses.sum(), inputs=[*learnt, images])
        except Exception as error:  # torch may refuse a model with any error
            reason = (str(error).splitlines() or [""])[0]
            raise CannotStack(f"{type(error).__name__}: {reason}") from error
        for name, buffer in buffers.items():
            if after[name].data_ptr() != buffer.data_ptr():
                raise CannotStack(f"{name} is replaced, not written to")

    def adopt(self) -> None:
        """Makes every discriminator's weights views of the stack."""
        for row, discriminator in enumerate(self._discriminators):
            for name, parameter in self._named[discriminator].items():
                parameter.data = self._parameters[name][row]
            for name, buffer in discriminator.model.named_buffers():
                buffer.data = self._buffers[name][row]

    def arrange(self, discriminators: Sequence[Discriminator]) -> None:
        """Puts the rows in another order, and adopts.

        Args:
            discriminators: the same ones, in the new order of their rows.
        """
        if self._discriminators == list(discriminators):
            return
        place = {discriminator: row for row, discriminator in enumerate(self._discriminators)}
        order = torch.tensor([place[discriminator] for discriminator in discriminators])
        order = order.to(self.device)
        self._parameters, self._buffers = self._parameters[order], self._buffers[order]
        self._discriminators = list(discriminators)
        self.adopt()

    def learn(
        self,
        rows: Sequence[int],
        batch: Samples,
        loss: Loss,
        scale: float,
        *,
        begin: bool,
        penalty: Penalty | None = None,
        source: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Puts the gradient of a loss in place, or adds it to the gradient that is there.

        Args:
            rows: of R discriminators, increasing.
            batch: what each of them sees, [R, b, C, H, W]; labels are [R, b].
            loss: of each.
            scale: what losses are multiplied by.
            begin: whether to replace the gradients that are there.
            penalty: added to the loss, from logits [R, b] and `source`.
            source: what the images were made of, by a graph; these themselves if not given.

        Returns:
            The losses without the penalty, [R], not scaled, and the logits, [R, b]; without graphs.
        """
        source = batch.images if source is None else source
        weights = self._chosen(rows)
        learnt = [weights.parameters[name].requires_grad_() for name in self._learnt]
        losses, logits, buffers = self._losses(weights, batch, loss)
        whole = losses if penalty is None else losses + penalty(logits, source)
        # backward(), unlike grad(), gives gradients the memory layout of the weights.
        torch.autograd.backward((whole * scale).sum(), inputs=learnt)
        self._put_back(rows, buffers)
        gradients = {name: leaf.grad for name, leaf in zip(self._learnt, learnt, strict=True)}
        self._put_gradients(rows, gradients, begin=begin)
        return losses.detach(), logits.detach()

    def input_gradient(
        self, rows: Sequence[int], batch: Samples, loss: Loss, scale: float, source: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of a loss with respect to what a batch was made of; weights get none.

        Args:
            rows: of R discriminators, increasing.
            batch: what each of them sees, [R, b, C, H, W]; labels are [R, b].
            loss: of each.
            scale: what losses are multiplied by.
            source: what the batch was made of, by a graph; wants a gradient.

        Returns:
            The gradient, scaled, [R, b, C, H, W], the losses, [R], not scaled, and the logits,
            [R, b].
        """
        losses, logits, buffers = self._losses(self._chosen(rows), batch, loss)
        (gradient,) = torch.autograd.grad((losses * scale).sum(), source)
        self._put_back(rows, buffers)
        return gradient, losses.detach(), logits.detach()

    def step(self, rows: Sequence[int], scale: float) -> None:
        """One step of these discriminators' own optimizers, computed at once.

        Args:
            rows: of the discriminators.
            scale: of the losses; gradients are divided by it first. A discriminator with a
                gradient that is not finite steps with zeros.
        """
        chosen = []
        for row in rows:
            discriminator = self._discriminators[row]
            parameters, own = self._named[discriminator].values(), discriminator.optimizer
            finite_or_zero([p.grad for p in parameters if p.grad is not None], scale)
            discriminator.clip()
            for parameter in parameters:
                chosen.append(parameter)
                # The state stays in its own optimizer, which may have loaded another one since.
                self._optimizer.state[parameter] = own.state[parameter]
        self._optimizer.param_groups[0]["params"] = chosen
        self._optimizer.param_groups[0]["lr"] = own.param_groups[0]["lr"]  # that of the iteration
        self._optimizer.step()

    def _losses(
        self, weights: _Weights, batch: Samples, loss: Loss
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Losses, [R], and logits, [R, b], with their graph; and the changed buffers, [R, …]."""

        def one(
            parameters: dict[str, Tensor],
            buffers: dict[str, Tensor],
            images: Tensor,
            labels: Tensor | None = None,
        ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            weights = {**parameters, **buffers}
            given = inputs(images, labels)
            verdict = as_verdict(torch.func.functional_call(self._template, weights, given))
            changed = {name: weights[name] for name in buffers}
            return loss(verdict, labels), verdict.logits.flatten(), changed

        vectorized: Any = torch.vmap(one, randomness="different")
        losses, logits, buffers = vectorized(
            weights.parameters, weights.buffers, *inputs(batch.images, batch.labels)
        )
        return losses, logits, buffers

    def _chosen(self, rows: Sequence[int]) -> _Weights:
        """The weights of some rows without a graph: all of the stack, or copies of some rows."""
        parameters, buffers = self._parameters, self._buffers
        if len(rows) < len(self._discriminators):
            chosen = torch.tensor(rows, device=self.device)
            parameters, buffers = parameters[chosen], buffers[chosen]
        return _Weights(_tensors(parameters.detach()), _tensors(buffers))

    def _put_back(self, rows: Sequence[int], buffers: dict[str, Tensor]) -> None:
        """Writes changed buffers back if they are copies; the stack's own are changed in place."""
        if len(rows) < len(self._discriminators):
            chosen = torch.tensor(rows, device=self.device)
            for name, buffer in buffers.items():
                self._buffers[name][chosen] = buffer

    @torch.no_grad()
    def _put_gradients(
        self, rows: Sequence[int], gradients: dict[str, Tensor | None], *, begin: bool
    ) -> None:
        there: list[Tensor] = []
        more: list[Tensor] = []
        by_row = {name: g.unbind(0) for name, g in gradients.items() if g is not None}
        for place, row in enumerate(rows):
            for name, parameter in self._named[self._discriminators[row]].items():
                gradient = by_row[name][place] if name in by_row else None
                if begin or parameter.grad is None:
                    parameter.grad = gradient
                elif gradient is not None:
                    there.append(parameter.grad)
                    more.append(gradient)
        if there:
            torch._foreach_add_(there, more)


def _stacked(tensors: Sequence[dict[str, Tensor]]) -> TensorDict:
    """Copies of tensors of the same names, [W, …] each."""
    names = tensors[0].keys()
    stacks = {name: torch.stack([own[name].detach() for own in tensors]) for name in names}
    return TensorDict(stacks, batch_size=[len(tensors)])


def _tensors(stacks: TensorDict) -> dict[str, Tensor]:
    """The same tensors as a dict by name."""
    tensors: dict[str, Tensor] = stacks.to_dict()
    return tensors


def _check_alike(discriminators: Sequence[Discriminator]) -> None:
    first, *others = (_described(discriminator.model) for discriminator in discriminators)
    if any(other != first for other in others):
        raise CannotStack("their models differ")
    if not first[1]:
        raise CannotStack("their models have no weights")


def _described(model: nn.Module) -> tuple[str, list[tuple[Any, ...]]]:
    """What all models must have in common: layers, their settings, names, shapes and types."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return repr(model), [(n, t.shape, t.dtype, t.device, t.requires_grad) for n, t in named]


def _one_for_all(discriminators: Sequence[Discriminator]) -> torch.optim.Optimizer:
    """An optimizer of the same kind and settings as each one's own, for all parameters."""
    optimizers = [discriminator.optimizer for discriminator in discriminators]
    kinds = {type(optimizer) for optimizer in optimizers}
    settings = [
        {name: value for name, value in group.items() if name != "params"}
        for optimizer in optimizers
        for group in optimizer.param_groups
    ]
    if len(kinds) > 1:
        raise CannotStack("their optimizers differ")
    if (kind := kinds.pop()) not in _STACKABLE:
        raise CannotStack(f"{kind.__name__} steps one discriminator at a time")
    if len(settings) > len(optimizers) or any(own != settings[0] for own in settings):
        raise CannotStack("their optimizers have several settings")
    parameters = [p for d in discriminators for p in d.model.parameters()]
    make: Callable[..., torch.optim.Optimizer] = type(optimizers[0])
    return make([{"params": parameters, **settings[0]}])
