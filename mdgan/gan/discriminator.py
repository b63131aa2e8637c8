"""A discriminator: a model with its optimizer, and their tensors that move in a swap."""

from collections.abc import Mapping

import torch
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
    """D with its optimizer over θ. `is_conditional`: whether D takes labels."""

    moves_moments = True
    """Whether the optimizer's tensors move in a swap; if not, each worker keeps its own."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, policy: Policy | None = None
    ) -> None:
        super().__init__(model, optimizer, policy)
        self.is_conditional = num_classes_of(model) is not None

    def zero_grad(self) -> None:
        """Removes all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def gradients(self) -> list[Tensor]:
        """The gradients of the parameters; the tensors themselves, not copies."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def state(self) -> dict[str, Tensor]:
        """Copies weights, buffers and the optimizer's tensors, by flat names, on the device."""
        return {name: tensor.detach().clone() for name, tensor in self._tensors().items()}

    def digest(self) -> str:
        """SHA-256 of the state: names, shapes, types and bits."""
        return digest_of(self._tensors())

    def moving(self) -> dict[str, Tensor]:
        """Copies what moves in a swap: weights and buffers, and moments if `moves_moments`."""
        if self.moves_moments:
            return self.state()
        return {name: tensor.detach().clone() for name, tensor in self._weights().items()}

    def _tensors(self) -> dict[str, Tensor]:
        moments = optimizer_tensors(self.model, self.optimizer)
        return {**self._weights(), **under("optimizer.", moments)}

    def _weights(self) -> dict[str, Tensor]:
        return under("model.", self.model.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Loads the `state` of a discriminator of the same architecture; see `load_model`."""
        check_names(state, "model.", "optimizer.")
        load_model(
            self.model, self.optimizer, part_of(state, "model."), part_of(state, "optimizer.")
        )

    def load_moving(self, moving: Mapping[str, Tensor]) -> None:
        """Loads the `moving` tensors of another discriminator; see `load_model`."""
        if self.moves_moments:
            self.load_state(moving)
            return
        check_names(moving, "model.")
        load_model(self.model, self.optimizer, part_of(moving, "model."), moments=None)
