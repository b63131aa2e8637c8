"""The scaling manager (ParaGAN, section 3.1.1): batch sizes and learning rates for N workers.

Both follow from the workers that train now, and from nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mdgan.gan.optimizer_settings import rate_factor


class BatchSizes(NamedTuple):
    """How many samples a worker's networks learn from; D from this many real and generated each."""

    discriminator: int
    generator: int

    def of(self, network: str) -> int:
        """The batch size of a network, `discriminator` or `generator`."""
        return self.generator if network == "generator" else self.discriminator


class WorkerShare(NamedTuple):
    """A worker's share of an iteration: b_n, and the weight of its gradients in their mean."""

    batch_sizes: BatchSizes
    weight: float


@dataclass(frozen=True)
class Scaling:
    """Turns the batch sizes and learning rates of one worker into those of N workers."""

    own: BatchSizes  # b of each worker, unless the user gives a global batch size
    global_batch_size: int | None = None  # B, of all workers together; None for N·b
    rule: str = "none"  # of `optimizer_settings.rate_factor`
    reference_batch_size: int = 1
    """The samples of an iteration for which the user gave the learning rates."""

    def batch_sizes(self, workers: Sequence[int]) -> dict[int, BatchSizes]:
        """b_n of the workers that train, which are in increasing order: B / N each.

        The first B mod N workers get one sample more; a worker beyond the B-th is left out.
        """
        if self.global_batch_size is None:
            return dict.fromkeys(workers, self.own)
        size, remainder = divmod(self.global_batch_size, len(workers))
        sizes = {worker: size + (n < remainder) for n, worker in enumerate(workers)}
        return {worker: BatchSizes(size, size) for worker, size in sizes.items() if size}

    def shares(self, workers: Sequence[int], network: str) -> dict[int, WorkerShare]:
        """The workers' shares, by how many samples a network learns from; weights add up to 1."""
        sizes = self.batch_sizes(workers)
        total = sum(size.of(network) for size in sizes.values())
        return {n: WorkerShare(size, size.of(network) / total) for n, size in sizes.items()}

    def rates(self, shares: Mapping[str, Mapping[int, WorkerShare]]) -> dict[str, float]:
        """The factor of each network's learning rate, from the shares of workers that train it."""
        return {
            network: self.rate_factor(sum(s.batch_sizes.of(network) for s in group.values()))
            for network, group in shares.items()
        }

    def rate_factor(self, num_samples: int) -> float:
        """The factor of a learning rate for a number of samples; a user's rule may raise."""
        return rate_factor(self.rule, num_samples / self.reference_batch_size)
