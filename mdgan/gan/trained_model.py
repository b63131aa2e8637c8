"""A model in training: its optimizer, learning rate and clipping."""

import torch
from torch import nn
from torch.optim.adam import adam

from mdgan.gan.optimizer_settings import Policy


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

        In small models `Adam.step` takes longer than its kernel. So after the first step, which
        makes the moments, Adam's function is called as `Adam.step` would call it, to the last bit.
        """
        self.clip()
        states, (group,) = self.optimizer.state, self.optimizer.param_groups
        trained = [p for p in group["params"] if p.grad is not None]
        is_adam = self._policy is not None and self._policy.optimizer == "adam"
        if not is_adam or not all(map(states.get, trained)):
            self.optimizer.step()
            return
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            adam(
                trained,
                [p.grad for p in trained],
                [states[p]["exp_avg"] for p in trained],
                [states[p]["exp_avg_sq"] for p in trained],
                [],  # of the variant amsgrad
                [states[p]["step"] for p in trained],
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
                fused=True,
            )
