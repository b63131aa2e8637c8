"""What moves in a swap: a discriminator's weights and buffers, and its optimizer's state."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from mdgan.gan.labels import num_classes_of
from mdgan.gan.model_state import (
    check_names,
    is_finite,
    load_model,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import clip, take_step, use_rate_of


class Discriminator:
    """A model with its optimizer.

    Args:
        model: D, in training mode.
        optimizer: over D's parameters θ.
        policy: that the optimizer was made by; None for a constant rate and gradients of any norm.

    Attributes:
        model: D, in training mode.
        optimizer: over D's parameters θ.
        parameters: θ, in D's order.
        is_conditional: whether D takes labels.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, policy: Policy | None = None
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        # Looking things up in a model takes as long as computing a small layer.
        self.parameters = list(model.parameters())
        self.is_conditional = num_classes_of(model) is not None
        self._policy = policy

    @property
    def device(self) -> torch.device:
        """Where D lives."""
        return self.parameters[0].device

    def at(self, iteration: int) -> None:
        """The learning rate becomes that of an iteration; the first is 1."""
        use_rate_of(iteration, self.optimizer, self._policy)

    def clip(self) -> None:
        """Scales the gradients that are in place down to the policy's norm."""
        clip(self.parameters, self._policy)

    def zero_grad(self) -> None:
        """No gradient is in place any more."""
        for parameter in self.parameters:
            parameter.grad = None

    def gradients(self) -> list[Tensor]:
        """The gradients that are in place, the tensors themselves."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def step(self) -> None:
        """One optimizer step with the gradients that are in place."""
        self.clip()
        take_step(self.optimizer, self._policy)

    def state(self) -> TensorDict:
        """A copy of everything that moves, by flat names, on the model's device."""
        state: TensorDict = TensorDict(self._tensors()).detach().clone()
        return state

    def digest(self) -> str:
        """SHA-256 of everything: names, shapes, types and bits."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self._tensors().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(np.asarray(tensor.detach().cpu().reshape(-1).view(torch.uint8)).data)
        return digest.hexdigest()

    def is_finite(self) -> bool:
        """Whether nothing of `state` is NaN or Inf."""
        return is_finite(self._tensors())

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors of `state`; not copies."""
        moments = optimizer_tensors(self.model, self.optimizer)
        return {**under("model.", self.model.state_dict()), **under("optimizer.", moments)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies a state into the model and the optimizer; keeps no reference to the given tensors.

        Args:
            state: as `state` of a discriminator of the same architecture returned it.

        Raises:
            KeyError, RuntimeError: a tensor is missing or has another shape or type; nothing
                changed.
        """
        check_names(state, "model.", "optimizer.")
        load_model(
            self.model, self.optimizer, part_of(state, "model."), part_of(state, "optimizer.")
        )
