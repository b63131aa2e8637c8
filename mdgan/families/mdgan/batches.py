"""How many batches the server generates, and from how many samples a worker learns in a step."""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.gan.settings import resolve_kappa
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.spelling import flag

if TYPE_CHECKING:
    from mdgan.families.mdgan.settings import MDGANSettings

_ENOUGH_GENERATED = 100
"""b of the single process, `standalone`, with which ten workers are compared."""
_MOST_BATCHES = 10  # as int8, with float32 feedback, 14 bytes a value; the paper's float32: 12
_MOST_BY_ARRIVAL = 2  # batches that the server generates for one worker alone


@dataclass(frozen=True)
class BatchPlan:
    """The batches of one iteration, of b samples each."""

    judged: int
    """κ: the batches that workers judge, and that the generator learns from."""
    generated: int
    """How many batches the server generates: κ, or more if all workers train on all of them."""
    own_samples: int
    """How many real samples a worker learns from in a local step: b, or `--step-samples`."""


@dataclass(frozen=True)
class BatchRule:
    """Works out the `BatchPlan` of each iteration from the settings of a run."""

    settings: "MDGANSettings"

    @property
    def num_judges(self) -> int:
        """How many workers hold a discriminator at the start."""
        return num_participants(self.settings.participation, self.settings.num_workers)

    @property
    def num_sharing(self) -> int:
        """How many workers judge the batches of one forward pass, at the start of the run."""
        return 1 if self.settings.by_arrival else self.num_judges

    @property
    def trains_on_all(self) -> bool:
        """Whether a worker trains on all generated batches, as `--step-samples` asks.

        If `--wire` changes images, the user wants few bytes, so each worker gets only its two.
        """
        has_more = self.settings.training.batch_size < self.settings.step_samples
        return has_more and self.settings.wire.images.is_exact

    @property
    def own_samples(self) -> int:
        """Real samples in a local step of a worker: b, as in the paper, unless a flag says more.

        Where Poisson sampling draws them, b is their mean number.
        """
        settings, b = self.settings, self.settings.training.batch_size
        return b if settings.privacy.draws_poisson else max(b, settings.step_samples)

    def kappa_for(self, num_workers: int | None = None) -> int:
        """κ for N live workers: `--kappa`, or max(2, ⌊log2 N⌋) (Darmanger and Gombas, 5.2).

        Where every worker trains on all batches, κ is by default the number that N workers can
        judge; not so if a rule or secure sums need several judges for each batch.

        Args:
            num_workers: N; by default `num_sharing`.
        """
        settings, number = self.settings, self.num_sharing if num_workers is None else num_workers
        spreads = settings.aggregation.name == "mean" and not settings.secure.secure_aggregation
        if settings.kappa == "auto" and self.trains_on_all and spreads:
            return min(number, self._enough_batches)
        return resolve_kappa(settings.kappa, number)

    def plan(self, kappa: int) -> BatchPlan:
        """The plan of an iteration with κ judged batches."""
        generated = max(kappa, self._enough_batches) if self.trains_on_all else kappa
        return BatchPlan(kappa, generated, self.own_samples)

    def num_fakes(self, kappa: int) -> int:
        """How many generated samples a worker learns from in a local step."""
        num_batches = self.plan(kappa).generated if self.trains_on_all else 1
        return self.settings.training.batch_size * num_batches

    def check_kappa(self, kappa: int) -> None:
        """Refuses a κ that leaves a batch without judges, or with too few for a masked sum."""
        num_judges = self.num_judges
        if kappa > (most := max(2, num_judges)):
            why = f"more batches than {num_judges} worker(s) at a time can judge"
            raise BadInput(flag("kappa", kappa), why, f"at most {most}")
        if self.settings.by_arrival and kappa > _MOST_BY_ARRIVAL:
            raise BadInput(
                flag("kappa", kappa),
                f"with {flag('updates', 'arrival')} a worker has batches of its own, one to judge "
                "and one to train on: 2, or 1 for both",
            )
        if self.settings.secure.secure_aggregation and kappa > num_judges // LEAST_PARTIES:
            raise BadInput(
                f"{flag('kappa', kappa)} of {num_judges} worker(s)",
                f"with {flag('secure_aggregation', True)} the server sees sums alone, of all that "
                "were asked",
                "leave out one of the two",
            )

    @property
    def _enough_batches(self) -> int:
        """How many batches every worker trains on: one for each judge, up to what is enough."""
        enough = ceil(_ENOUGH_GENERATED / self.settings.training.batch_size)
        return min(self.num_judges, enough, _MOST_BATCHES)
