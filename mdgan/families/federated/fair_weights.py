"""Whether a weighted sum hides what each host has put into it."""

from collections.abc import Collection, Mapping
from math import isfinite

from mdgan.engine.host_keys import NotMasked
from mdgan.engine.secure_settings import threshold


def check_weights(
    host: int,
    weights: Mapping[int, float],
    carried: Mapping[int, Collection[int]],
    least: int,
    *,
    uniform: bool,
) -> None:
    """Checks that no worker of a host weighs so much that the sum is almost its answer alone.

    With weights of 1 for one worker and 0 for all others, the sum would be that worker's answer.
    As hosts may drop out, only those that weigh least count, of as many as must survive.

    Args:
        host: with a part in the sum.
        weights: by worker, those of all workers of the sum.
        carried: by host of the sum, its workers.
        least: how many hosts a sum must have.
        uniform: whether all weights of the run are equal.

    Raises:
        NotMasked: a weight is none, or of a worker that no host of the sum has; or one worker of
            this host has 1 / (least - 1) of the weight, or more.
    """
    if not weights.keys() <= {worker for own in carried.values() for worker in own}:
        raise NotMasked("it gives weights to workers that no host of the sum has")
    if not all(isfinite(weight) and weight >= 0 for weight in weights.values()):
        raise NotMasked("it gives weights that are none")
    if uniform and len(set(weights.values())) > 1:
        raise NotMasked("it gives workers different weights, and the run has --weighting uniform")
    of_host = {h: sum(weights.get(worker, 0.0) for worker in own) for h, own in carried.items()}
    others = sorted(weight for h, weight in of_host.items() if h != host)
    survive = max(least, threshold(len(carried)))
    left = of_host[host] + sum(others[: survive - 1])
    heaviest = max(carried[host], key=lambda worker: weights.get(worker, 0.0))
    if not weights.get(heaviest, 0.0) * (least - 1) < left:
        raise NotMasked(
            f"rank {heaviest} has {weights.get(heaviest, 0.0) / (left or 1.0):.0%} of the weight "
            f"of a sum, and a host that insists on {least} hosts gives less than "
            f"{1 / (least - 1):.0%}"
        )
