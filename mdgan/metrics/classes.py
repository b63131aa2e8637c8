"""Which classes a generator makes, by what the extractor predicts: is there mode collapse?"""

import torch
from torch import Tensor

LEAST_SHARE = 0.1
"""Of the share that a class has in the real data; below it the class counts as lost."""


def class_histogram(probabilities: Tensor) -> Tensor:
    """How many samples are predicted to be of each class.

    Args:
        probabilities: float64 [n, K].

    Returns:
        int64 [K].
    """
    return torch.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])


def classes_covered(generated: Tensor, real: Tensor) -> int:
    """The number of classes that get at least a tenth of the share they have in the real data.

    Args:
        generated: int64 [K], predicted classes, at least one sample.
        real: int64 [K], likewise.
    """
    wanted = LEAST_SHARE * real.double() / real.sum()
    return int((generated.double() / generated.sum() >= wanted)[real > 0].sum())


def class_divergence(generated: Tensor, real: Tensor) -> float:
    """KL(generated ‖ real) of two class histograms in nats; 0 if shares agree.

    Args:
        generated: int64 [K], at least one sample.
        real: int64 [K], at least one sample.

    Returns:
        Infinity if a class is generated that is never predicted in the real data.
    """
    made, true = generated.double() / generated.sum(), real.double() / real.sum()
    present = generated > 0
    return max(0.0, float((made[present] * (made[present] / true[present]).log()).sum()))
