"""The scaling manager (ParaGAN, section 3.1.1): batch sizes and learning rates for N workers.

Both are functions of the workers that train now; nothing is remembered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mdgan.gan.optimizer_settings import rate_factor


class BatchSizes(NamedTuple):
    """How many samples a worker's networks learn from; D from as many real and generated."""

    discriminator: int
    generator: int

    def of(self, network: str) -> int:
        """That of a network, `discriminator` or `generator`."""
        return self.generator if network == "generator" else self.discriminator


class WorkerShare(NamedTuple):
    """A worker's share of an iteration: b_n, and the weight of its gradients in their mean."""

    batch_sizes: BatchSizes
    weight: float


@dataclass(frozen=True)
class Scaling:
    """How hyper-parameters that are good for one worker become those of N."""

    own: BatchSizes  # b of each worker, unless there is a global batch size
    global_batch_size: int | None = None  # B, of all workers together; None for N·b
    rule: str = "none"  # of `optimizer_settings.rate_factor`
    reference_batch_size: int = 1
    """The samples of an iteration for which the learning rates are given."""

    def batch_sizes(self, workers: Sequence[int]) -> dict[int, BatchSizes]:
        """b_n of the workers that train, given in increasing order: B / N each.

        The first ones get one more until the remainder is dealt out; any beyond the B-th get none.
        """
        if self.global_batch_size is None:
            return dict.fromkeys(workers, self.own)
        each, remainder = divmod(self.global_batch_size, len(workers))
        sizes = {worker: each + (n < remainder) for n, worker in enumerate(workers)}
        return {worker: BatchSizes(size, size) for worker, size in sizes.items() if size}

    def shares(self, workers: Sequence[int], network: str) -> dict[int, WorkerShare]:
        """The shares of workers, which weigh as much as a network's samples; all add up to 1."""
        sizes = self.batch_sizes(workers)
        total = sum(size.of(network) for size in sizes.values())
        return {n: WorkerShare(size, size.of(network) / total) for n, size in sizes.items()}

    def rates(self, shares: Mapping[str, Mapping[int, WorkerShare]]) -> dict[str, float]:
        """What learning rates are multiplied by: network → shares of those that train it."""
        return {
            network: self.rate_factor(sum(own.batch_sizes.of(network) for own in group.values()))
            for network, group in shares.items()
        }

    def rate_factor(self, num_samples: int) -> float:
        """By what a rate is multiplied for a number of samples; a user's rule may fail."""
        return rate_factor(self.rule, num_samples / self.reference_batch_size)
