"""Which batches an iteration has: how many, and from how many samples a worker learns."""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from mdgan.gan.settings import resolve_kappa

_ENOUGH_GENERATED = 100
"""One process with b = 100 learns from as many in a step; ten workers are compared with it."""
_MOST_BATCHES = 10  # with a byte a value, and four of feedback, 14 bytes instead of the paper's 12


@dataclass(frozen=True)
class BatchPlan:
    """The batches of one iteration, of b samples each."""

    judged: int
    """κ: the batches that workers judge, and that the generator learns from."""
    generated: int
    """How many the server generates: κ, or with `--step-samples` more, which all train on."""
    own_samples: int
    """Real samples in a local step of a worker; b, as in the paper, unless a flag says more."""


@dataclass(frozen=True)
class BatchRule:
    """How the settings of a run make the plan of each iteration."""

    batch_size: int
    kappa: int | Literal["auto"]
    step_samples: int
    num_judges: int
    """How many workers hold a discriminator at the start."""
    spreads_judges: bool
    """Whether each may judge a batch of its own. Rules that compare judges, and secure sums of
    them, need several of a batch."""
    wire_keeps_images: bool
    """Whether `--wire` leaves images as they are. If not, the user wants few bytes, so each worker
    gets only its two batches."""
    draws_poisson: bool
    """Whether the batches of a worker's own samples have any size, around b."""

    @property
    def trains_on_all(self) -> bool:
        """Whether a worker trains on all generated batches, as `--step-samples` asks."""
        return self.batch_size < self.step_samples and self.wire_keeps_images

    @property
    def own_samples(self) -> int:
        """See `BatchPlan`."""
        return self.batch_size if self.draws_poisson else max(self.batch_size, self.step_samples)

    def kappa_for(self, num_workers: int) -> int:
        """κ of so many live workers: `--kappa`, or max(2, ⌊log2 N⌋) (Darmanger and Gombas, 5.2).

        Where all train on all batches, N by default: the generator learns from as many as it can.
        """
        if self.kappa == "auto" and self.trains_on_all and self.spreads_judges:
            return min(num_workers, self._enough_batches)
        return resolve_kappa(self.kappa, num_workers)

    def plan(self, kappa: int) -> BatchPlan:
        """The plan of an iteration with κ judged batches."""
        generated = max(kappa, self._enough_batches) if self.trains_on_all else kappa
        return BatchPlan(kappa, generated, self.own_samples)

    def num_fakes(self, kappa: int) -> int:
        """From how many generated samples a worker learns in a local step."""
        return self.batch_size * (self.plan(kappa).generated if self.trains_on_all else 1)

    @property
    def _enough_batches(self) -> int:
        """The batches to train on: one of each worker, unless fewer hold enough samples."""
        enough = ceil(_ENOUGH_GENERATED / self.batch_size)
        return min(self.num_judges, enough, _MOST_BATCHES)
