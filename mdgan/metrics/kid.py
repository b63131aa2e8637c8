"""The Kernel Inception Distance (Bińkowski et al. 2018, "Demystifying MMD GANs")."""

from torch import Tensor

from mdgan.metrics.precomputed import Precomputed, quietly

LEAST_SAMPLES = 4
_NUM_SUBSETS = 100
_MOST_IN_SUBSET = 1000


def kernel_distance(real: Tensor, generated: Tensor, seed: int) -> tuple[float, float]:
    """The unbiased squared MMD with the kernel (xᵀy/d + 1)³, by torchmetrics, in float64.

    It is averaged over 100 random subsets of 1,000 of each, or of half of them where there are
    fewer than 2,000: subsets of all would be the same, and their spread would say nothing.

    Args:
        real: float64 [n, d], n ≥ 4.
        generated: float64 [n, d].
        seed: decides the subsets.

    Returns:
        Mean, which may be a little below zero, and standard deviation over the subsets.
    """
    from torchmetrics.image.kid import KernelInceptionDistance  # takes seconds to import

    size = min(_MOST_IN_SUBSET, min(len(real), len(generated)) // 2)
    with quietly(seed):
        metric = KernelInceptionDistance(
            Precomputed(real.shape[1]),
            subsets=_NUM_SUBSETS,
            subset_size=size,
            sync_on_compute=False,
        )
        metric.update(real, real=True)
        metric.update(generated, real=False)
        mean, deviation = metric.compute()
    return float(mean), float(deviation)
