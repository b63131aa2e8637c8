"""Lookahead (Zhang et al. 2019, Algorithm 1), whose slow weights live as long as a window."""

from typing import Any

import pytorch_optimizer
import torch


class Lookahead(pytorch_optimizer.Lookahead):
    """Every k = 5 steps φ ← φ + ½ (θ − φ) and θ ← φ.

    At the end of a window the slow weights φ are the weights θ. So they are kept, and travel, only
    within windows, and a window begins with the weights as they are then: those of the seed, or
    others that were loaded since.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.begin_anew()

    def begin_anew(self) -> None:
        """A new window begins; for weights that others have replaced."""
        self.state.clear()
        for group in self.param_groups:
            group["counter"] = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of the optimizer within; the last of a window goes back to the slow weights."""
        if not self.state:
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["slow_params"] = parameter.detach().clone()
        loss = super().step(closure)
        if not any(group["counter"] for group in self.param_groups):
            self.state.clear()
        return loss
