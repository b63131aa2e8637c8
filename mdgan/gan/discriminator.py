"""A discriminator: a model with its optimizer, and what of both moves in a swap."""

from collections.abc import Mapping

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from mdgan.gan.labels import num_classes_of
from mdgan.gan.model_state import (
    check_names,
    digest_of,
    load_model,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel


class Discriminator(TrainedModel):
    """D with its optimizer over θ; `is_conditional` if it takes labels."""

    moves_moments = True
    """Whether all that the optimizer keeps moves in a swap; else each worker keeps its own."""

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
        """A copy of everything, by flat names, on the model's device."""
        state: TensorDict = TensorDict(self._tensors()).detach().clone()
        return state

    def digest(self) -> str:
        """SHA-256 of everything: names, shapes, types and bits."""
        return digest_of(self._tensors())

    def moving(self) -> dict[str, Tensor]:
        """A copy of what moves in a swap: weights and buffers, and moments if `moves_moments`."""
        moving = self._tensors() if self.moves_moments else self._weights()
        return {name: tensor.detach().clone() for name, tensor in moving.items()}

    def _tensors(self) -> dict[str, Tensor]:
        moments = optimizer_tensors(self.model, self.optimizer)
        return {**self._weights(), **under("optimizer.", moments)}

    def _weights(self) -> dict[str, Tensor]:
        return under("model.", self.model.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies `state` of a discriminator of the same architecture in, as `load_model` does."""
        check_names(state, "model.", "optimizer.")
        load_model(
            self.model, self.optimizer, part_of(state, "model."), part_of(state, "optimizer.")
        )

    def load_moving(self, moving: Mapping[str, Tensor]) -> None:
        """Copies `moving` of another one in; moments that do not move stay. See `load_model`."""
        if self.moves_moments:
            self.load_state(moving)
            return
        check_names(moving, "model.")
        load_model(self.model, self.optimizer, part_of(moving, "model."), moments=None)
