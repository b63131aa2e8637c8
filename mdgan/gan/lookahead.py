"""Lookahead (Zhang et al. 2019, Algorithm 1), which keeps slow weights only within a window."""

from typing import Any

import pytorch_optimizer
import torch


class Lookahead(pytorch_optimizer.Lookahead):
    """Every k = 5 steps φ ← φ + ½ (θ − φ) and θ ← φ.

    At the end of a window the slow weights φ equal the weights θ. So the state holds φ only within
    a window. A window begins with the present weights: those of the seed, or loaded ones.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begins a new window, because other code has replaced the weights."""
        self.state.clear()
        for group in self.param_groups:
            group["counter"] = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Takes a step of the inner optimizer; the last of a window moves to the slow weights."""
        if not self.state:
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["slow_params"] = parameter.detach().clone()
        loss = super().step(closure)
        if not any(group["counter"] for group in self.param_groups):
            self.state.clear()
        return loss
