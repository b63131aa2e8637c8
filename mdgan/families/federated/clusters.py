"""`--clusters`: a client groups unlabelled samples, and counts groups for classes (FeGAN, 3.1)."""

import threading
import warnings
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed, generator_for

Rows = NDArray[np.float64]

NUM_DIMENSIONS = 32
"""The number of dimensions that images are projected to. A random projection keeps distances
(Johnson and Lindenstrauss 1984), here to one part in eight; a mixture of Gaussians in 784
dimensions would need far more samples than a client has."""

_ATTEMPTS = 4
_MOST_STEPS = 300

# Limits on threads hold for the whole process: two at once could leave it on one thread for good.
_one_at_a_time = threading.Lock()


def cluster_counts(images: Iterable[Tensor], method: str, k: int, seed: int) -> list[int]:
    """Groups images, float32 [n, C, H, W] in pieces, and counts the groups; zeros come last.

    Clusters have no names that clients share. So each client orders its clusters by the means of
    their samples along one random direction, the same for all clients. Clients that hold all k
    kinds of samples agree on the order, except for kinds that lie close together. Clients that hold
    only some kinds do not: their counts show how uneven their data are, not which kinds they hold.

    Raises:
        BadInput: k < 1.
    """
    if k < 1:
        raise BadInput(f"{k} clusters", "ask for at least 1")
    rows = _projected(images, seed)
    counts = [0] * k
    if not len(rows):
        return counts
    num_clusters = min(k, len(rows))
    labels = _grouped(rows, method, num_clusters, seed=derive_seed(seed, "clusters") % 2**32)
    direction = torch.randn(
        NUM_DIMENSIONS, generator=generator_for(seed, "cluster-order"), dtype=torch.float64
    ).numpy()
    places = rows @ direction
    members = [labels == label for label in np.unique(labels)]
    members.sort(key=lambda is_member: float(places[is_member].mean()))
    counts[: len(members)] = [int(is_member.sum()) for is_member in members]
    return counts


def _projected(images: Iterable[Tensor], seed: int) -> Rows:
    """The images as float64 [n, 32], by a random matrix that keeps lengths on average."""
    matrix, pieces = torch.empty(0, NUM_DIMENSIONS), list[Tensor]()
    for piece in images:
        flat = piece.flatten(1).to("cpu", torch.float64)
        if not pieces:
            shape = flat.shape[1], NUM_DIMENSIONS
            random = generator_for(seed, "cluster-projection", flat.shape[1])
            matrix = torch.randn(shape, generator=random, dtype=torch.float64)
            matrix.div_(NUM_DIMENSIONS**0.5)
        # The size of the pieces changes the product's last bits, which float32 rounds away.
        pieces.append((flat @ matrix).float().double())
    return torch.cat(pieces).numpy() if pieces else np.empty((0, NUM_DIMENSIONS))


def _grouped(rows: Rows, method: str, num_clusters: int, seed: int) -> NDArray[np.int64]:
    """The cluster of each row; on one thread, as the order of additions decides the last bits."""
    if num_clusters == 1:
        return np.zeros(len(rows), dtype=np.int64)
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    if method == "kmeans":
        model = KMeans(num_clusters, n_init=_ATTEMPTS, max_iter=_MOST_STEPS, random_state=seed)
    else:
        model = GaussianMixture(
            num_clusters, covariance_type="diag", max_iter=_MOST_STEPS, random_state=seed
        )
    with _one_at_a_time, threadpool_limits(limits=1), warnings.catch_warnings():
        # Clusters that have not quite converged serve as well.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit_predict(rows), dtype=np.int64)
