"""The scaling manager (ParaGAN, section 3.1.1): batch sizes and learning rates for N workers.

Both are functions of the workers that train now. Nothing is remembered, so they are right at once
when workers come or go, and a run that is resumed needs nothing from before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mdgan.gan.rate_scaling import rate_factor


class BatchSizes(NamedTuple):
    """How many samples the networks of a worker learn from in an iteration.

    Attributes:
        discriminator: real ones, and as many generated ones.
        generator: generated ones.
    """

    discriminator: int
    generator: int

    def of(self, network: str) -> int:
        """That of a network, `discriminator` or `generator`."""
        return self.generator if network == "generator" else self.discriminator


@dataclass(frozen=True)
class Scaling:
    """How hyper-parameters that are good for one worker become those of N.

    Attributes:
        own: b of each worker, unless there is a global batch size.
        global_batch_size: B, of all workers together; None for N·b.
        rule: of `rate_scaling.rate_factor`.
        reference_batch_size: the samples of an iteration for which the learning rates are given.
    """

    own: BatchSizes
    global_batch_size: int | None = None
    rule: str = "none"
    reference_batch_size: int = 1

    def batch_sizes(self, workers: Sequence[int]) -> dict[int, BatchSizes]:
        """b_n of each worker.

        Args:
            workers: those that train, in increasing order.

        Returns:
            B / N each, and one more for each of the first ones until the remainder of the division
            is dealt out. Workers beyond the B-th are left out.
        """
        if self.global_batch_size is None:
            return dict.fromkeys(workers, self.own)
        each, remainder = divmod(self.global_batch_size, len(workers))
        sizes = {worker: each + (n < remainder) for n, worker in enumerate(workers)}
        return {worker: BatchSizes(size, size) for worker, size in sizes.items() if size}

    def rate_factor(self, num_samples: int) -> float:
        """What learning rates are multiplied by.

        Args:
            num_samples: that the network learns from in an iteration.

        Raises:
            BadInput: the user's own rule gives no number above 0.
        """
        return rate_factor(self.rule, num_samples / self.reference_batch_size)
