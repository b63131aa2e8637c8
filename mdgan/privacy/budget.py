"""What a worker's samples, or clients as wholes, may spend in a run, and what they have spent."""

import hashlib
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.privacy.accountant import PrivacyCharge, PrivacyHistory, epsilon_of, replaced
from mdgan.privacy.canaries import Canaries
from mdgan.privacy.clients import RoundNotice
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import BLOCK, IN_USE, Ledger, LedgerView, Plan, most_steps
from mdgan.privacy.planning import StepSchedule, plan_of
from mdgan.privacy.real_half import Owned, PoissonHalf, SeededSteps
from mdgan.privacy.settings import Private

_PATIENCE = 50.0
"""ε is computed anew after this many times as long as it took before."""


class Spent(NamedTuple):
    """What a worker's samples have spent.

    Attributes:
        epsilon: ε, for the run's δ, of all steps up to now; see docs/privacy.md.
        replaced: the same for a sample that may be another one instead of none.
    """

    epsilon: float
    replaced: float


class Budget:
    """Counts a worker's steps, and stops it before it spends more than it may."""

    def __init__(self, ledger: Ledger, settings: Private) -> None:
        self._ledger = ledger
        self._settings = settings
        self._plan = plan = ledger.run.plan
        self._earlier = tuple(sorted({*ledger.earlier, *plan.disclosed}))
        self._computed = -1, Spent(0.0, 0.0)
        self._due = 0.0
        number = settings.privacy.audit_canaries
        self.canaries = (
            Canaries(number, plan.rate, settings.privacy.clip, plan.noise) if number else None
        )

    @property
    def noise(self) -> float:
        """σ."""
        return self._plan.noise

    @property
    def round(self) -> RoundNotice:
        """What hosts are told of the round that comes next."""
        run, taken = self._ledger.run, self._ledger.taken
        name = hashlib.sha256(run.stream + run.number.to_bytes(8, "big")).hexdigest()[:32]
        until = min(self._plan.until, max(self._plan.planned, taken + 1))
        return RoundNotice(name, self.noise, until - taken, taken)

    @property
    def taken(self) -> int:
        """How many steps were taken, in all runs that are remembered."""
        return self._ledger.taken + most_steps(self._ledger.earlier)

    @property
    def over(self) -> bool:
        """See `Steps`."""
        return self._ledger.taken >= self._plan.until

    def key(self, use: str) -> bytes:
        """See `Steps`."""
        if self.over:  # asked before each iteration; privacy must not hang on that alone
            raise RuntimeError("a worker that has spent its budget takes no step")
        return self._ledger.key(use)

    def advance(self) -> None:
        """See `Steps`."""
        self._ledger.taken += 1

    def state(self) -> dict[str, Tensor]:
        """See `Steps`: nothing. What was spent is spent, whatever a run goes back to."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Steps`."""

    @property
    def iterations_left(self) -> int:
        """How many iterations of L steps the worker may still train."""
        return (self._plan.until - self._ledger.taken) // self._settings.training.local_steps

    @property
    def limit(self) -> float:
        """ε once all allowed steps are taken."""
        return self._spent(self._plan.until).epsilon

    def _spent(self, steps: int) -> Spent:
        plan, settings, earlier = self._plan, self._settings, self._earlier
        charge = PrivacyCharge(plan.noise, plan.rate, steps)
        if steps > plan.planned:  # without a bound a run may go on; see `epsilon_of`
            earlier = earlier or (PrivacyHistory(plan.order, ()),)
        delta, kind = settings.privacy.dp_delta or 0.0, settings.privacy.dp_accountant
        worse, histories = replaced(charge, earlier)
        return Spent(
            epsilon_of(charge, delta, kind, earlier), epsilon_of(worse, delta, "rdp", histories)
        )

    def spent(self, *, exactly: bool = True) -> Spent:
        """What is spent up to now; unless `exactly`, possibly of some fewer steps, in no time."""
        (steps, spent), taken = self._computed, self._ledger.taken
        begin = time.monotonic()
        if taken != steps and (exactly or begin >= self._due):
            spent = self._spent(taken)
            self._computed = taken, spent
            now = time.monotonic()
            if steps >= 0:  # the first time takes long, for what it imports
                self._due = now + _PATIENCE * (now - begin)
        return spent

    def close(self) -> None:
        """The process ends in order."""
        if self.canaries is not None:
            self.canaries.close()
        self._ledger.close()


def make_half(
    shard: Owned, rank: int, settings: Private, budget: Budget | None, *stream: int
) -> PoissonHalf | None:
    """How a worker learns from its samples; None for shuffled batches."""
    if not settings.privacy.draws_poisson:
        return None
    return PoissonHalf(
        shard,
        budget or SeededSteps(known_to_all(settings.training.seed, rank, *stream)),
        settings.training.batch_size,
        clip=settings.privacy.clip if settings.privacy.hides_samples else inf,
        noise=0.0 if budget is None else budget.noise,
        tells_loss=settings.privacy.discloses("losses"),
        num_public=settings.privacy.public_samples(len(shard))
        if settings.privacy.hides_samples
        else None,
        canaries=None if budget is None else budget.canaries,
    )


def known_to_all(seed: int, rank: int, *stream: int) -> bytes:
    """What steps have instead of a secret where all may know their numbers; rank 0 for rounds."""
    return derive_seed(seed, "real halves", rank, *stream).to_bytes(8, "big")


def open_budget(
    rank: int, num_samples: int, settings: Private, folder: Path, contents: Callable[[], Contents]
) -> Budget | None:
    """What the samples of a worker may spend in a run; None if there is no noise."""
    if not settings.privacy.hides_samples or settings.privacy.dp_noise == 0:
        return None
    schedule = StepSchedule.of_samples(rank, num_samples, settings)

    def make_plan(known: LedgerView) -> Plan:
        return plan_of(settings.privacy, schedule, known, folder)

    return Budget(Ledger(folder, contents(), make_plan, BLOCK, IN_USE), settings)


def open_clients_budget(
    settings: Private,
    schedule: StepSchedule,
    folder: Path,
    contents: Contents,
    taken: int,
    disclosed: tuple[PrivacyHistory, ...] = (),
) -> Budget:
    """What clients as wholes may spend in a run, by what the server knows.

    A round is reserved by itself: it is long.
    """

    def make_plan(known: LedgerView) -> Plan:
        if known.taken < taken:
            raise BadInput(
                f"--dp-ledger {folder}: knows of {known.taken:,} rounds of {schedule.whose}, and "
                f"this run alone has had {taken:,}; copy it from the machine of its server"
            )
        return plan_of(settings.privacy, schedule, known, folder, disclosed)

    in_use = (
        f"another run spends of {schedule.whose}; wait for its end, or give --dp-ledger DIR if "
        "these are others"
    )
    return Budget(Ledger(folder, contents, make_plan, 1, in_use), settings)
