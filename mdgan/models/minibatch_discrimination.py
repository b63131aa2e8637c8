"""Mini-batch discrimination (Salimans et al. 2016, section 3.2): D sees how alike a batch is."""

import torch
from torch import Tensor, nn

NUM_KERNELS, KERNEL_SIZE = 100, 5
"""B and C; the paper leaves them open, these are of its authors' code."""


class MinibatchDiscrimination(nn.Module):
    """Adds to the features of each sample how close all samples of the batch are to it.

    With f(x_i) of A numbers, T of A × B × C and M_i = f(x_i) T:
    o(x_i)_k = Σ_j exp(−‖M_ik − M_jk‖₁) over the whole batch.

    Args:
        num_features: A.
        num_kernels: B.
    """

    def __init__(self, num_features: int, num_kernels: int = NUM_KERNELS) -> None:
        super().__init__()
        self._num_kernels = num_kernels
        self.tensor = nn.Linear(num_features, num_kernels * KERNEL_SIZE, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Appends the closeness.

        Args:
            features: f, [b, A].

        Returns:
            [b, A + B].
        """
        rows = self.tensor(features).float().unflatten(1, (self._num_kernels, KERNEL_SIZE))
        distances = (rows[:, None] - rows[None]).abs().sum(3)
        return torch.cat([features, distances.neg().exp().sum(1).to(features.dtype)], 1)
