"""What moves in a swap: a discriminator's weights and buffers, and its optimizer's state."""

from collections.abc import Mapping

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from mdgan.gan.labels import num_classes_of
from mdgan.gan.model_state import (
    check_names,
    digest_of,
    is_finite,
    load_model,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel


class Discriminator(TrainedModel):
    """D with its optimizer over θ; `is_conditional` if it takes labels."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, policy: Policy | None = None
    ) -> None:
        super().__init__(model, optimizer, policy)
        self.is_conditional = num_classes_of(model) is not None

    def zero_grad(self) -> None:
        """No gradient is in place any more."""
        for parameter in self.parameters:
            parameter.grad = None

    def gradients(self) -> list[Tensor]:
        """The gradients that are in place, the tensors themselves."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def state(self) -> TensorDict:
        """A copy of everything that moves, by flat names, on the model's device."""
        state: TensorDict = TensorDict(self._tensors()).detach().clone()
        return state

    def digest(self) -> str:
        """SHA-256 of everything: names, shapes, types and bits."""
        return digest_of(self._tensors())

    def is_finite(self) -> bool:
        """Whether nothing of `state` is NaN or Inf."""
        return is_finite(self._tensors())

    @torch.no_grad()
    def average_with(self, other: "Discriminator") -> bool:
        """Both become the mean of both, but keep counts; False if one alone has moments yet."""
        ours, theirs = self._tensors(), other._tensors()
        if ours.keys() != theirs.keys():
            return False
        names = [name for name, tensor in ours.items() if tensor.is_floating_point()]
        means, others = [ours[name] for name in names], [theirs[name] for name in names]
        torch._foreach_add_(means, others)
        torch._foreach_mul_(means, 0.5)
        torch._foreach_copy_(others, means)
        return True

    def _tensors(self) -> dict[str, Tensor]:
        moments = optimizer_tensors(self.model, self.optimizer)
        return {**under("model.", self.model.state_dict()), **under("optimizer.", moments)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies `state` of a discriminator of the same architecture in, as `load_model` does."""
        check_names(state, "model.", "optimizer.")
        load_model(
            self.model, self.optimizer, part_of(state, "model."), part_of(state, "optimizer.")
        )
