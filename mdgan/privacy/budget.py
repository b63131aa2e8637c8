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
from mdgan.privacy.accountant import Charge, Past, epsilon_of, replaced
from mdgan.privacy.canaries import Canaries, num_planted
from mdgan.privacy.clients import Round
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import BLOCK, IN_USE, Known, Ledger, Plan, most_steps
from mdgan.privacy.planning import Schedule, plan_of
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
    """Counts a worker's steps, and stops it before it spends more than it may.

    Args:
        steps: have the random numbers.
        settings: of the run.
        plan: what may be spent.
        before: how many steps of the plan were taken before.
        earlier: what the samples have been through before the plan.

    Attributes:
        canaries: that are drawn beside the samples, if the user wants some.
    """

    def __init__(
        self,
        steps: Ledger | SeededSteps,
        settings: Private,
        plan: Plan,
        before: int = 0,
        earlier: tuple[Past, ...] = (),
    ) -> None:
        self._steps = steps
        self._settings = settings
        self._plan = plan
        self._before = before
        self._earlier = earlier
        self._allowed = plan.until - before
        self._count = 0
        self._told = -1, Spent(0.0, 0.0)
        self._due = 0.0
        number = settings.privacy.audit_canaries
        planted = num_planted(number)
        self.canaries = (
            Canaries(number, plan.rate, settings.privacy.clip, plan.noise, num_planted=planted)
            if number
            else None
        )

    @property
    def noise(self) -> float:
        """σ."""
        return self._plan.noise

    @property
    def round(self) -> Round | None:
        """What hosts are told of the round that comes next; None if nothing is remembered."""
        if isinstance(self._steps, SeededSteps):
            return None
        run, taken = self._steps.run, self._steps.taken
        name = hashlib.sha256(run.stream + run.number.to_bytes(8, "big")).hexdigest()[:32]
        until = min(self._plan.until, max(self._plan.planned, taken + 1))
        return Round(name, self.noise, until - taken, taken)

    @property
    def taken(self) -> int:
        """How many steps were taken, in all runs that are remembered."""
        steps = self._steps
        if isinstance(steps, SeededSteps):
            return steps.count
        return steps.taken + most_steps(steps.earlier)

    @property
    def over(self) -> bool:
        """See `Steps`."""
        return self._count >= self._allowed

    def key(self, use: str) -> bytes:
        """See `Steps`."""
        if self.over:  # asked before each iteration; privacy must not hang on that alone
            raise RuntimeError("a worker that has spent its budget takes no step")
        return self._steps.key(use)

    def advance(self) -> None:
        """See `Steps`."""
        self._steps.advance()
        self._count += 1

    def state(self) -> dict[str, Tensor]:
        """See `Steps`."""
        return self._steps.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Steps`."""
        self._steps.load_state(state)
        if isinstance(self._steps, SeededSteps):
            self._count = self._steps.count

    @property
    def iterations_left(self) -> int:
        """How many iterations of L steps the worker may still train."""
        return (self._allowed - self._count) // self._settings.training.local_steps

    @property
    def limit(self) -> float:
        """ε once all allowed steps are taken."""
        return self._spent(self._allowed).epsilon

    def _spent(self, steps: int) -> Spent:
        plan, settings = self._plan, self._settings
        charge, earlier = Charge(plan.noise, plan.rate, self._before + steps), self._earlier
        if charge.steps > plan.planned:  # without a bound a run may go on; see `epsilon_of`
            earlier = earlier or (Past(plan.order, ()),)
        delta, kind = settings.privacy.dp_delta or 0.0, settings.privacy.dp_accountant
        worse, pasts = replaced(charge, earlier)
        return Spent(
            epsilon_of(charge, delta, kind, earlier), epsilon_of(worse, delta, "rdp", pasts)
        )

    def spent(self, *, exactly: bool = True) -> Spent:
        """What is spent up to now.

        Args:
            exactly: of all steps; else possibly of some fewer, which takes no time.
        """
        computed, found = self._told
        begin = time.monotonic()
        if self._count != computed and (exactly or begin >= self._due):
            found = self._spent(self._count)
            self._told = self._count, found
            now = time.monotonic()
            if computed >= 0:  # the first time takes long, for what it imports
                self._due = now + _PATIENCE * (now - begin)
        return found

    def close(self) -> None:
        """The process ends in order."""
        if self.canaries is not None:
            self.canaries.close()
        if isinstance(self._steps, Ledger):
            self._steps.close()


def make_half(
    shard: Owned, rank: int, settings: Private, budget: Budget | None, *stream: int
) -> PoissonHalf | None:
    """How a worker learns from its samples; None for shuffled batches.

    Args:
        shard: its samples.
        rank: its number.
        settings: of the run.
        budget: of its samples, if they have one.
        stream: more that decides the random numbers where there is none: the round.
    """
    if not settings.privacy.draws_poisson:
        return None
    steps = budget or SeededSteps(known_to_all(settings.training.seed, rank, *stream))
    noise = 0.0 if budget is None else budget.noise
    return PoissonHalf(
        shard,
        steps,
        settings.training.batch_size,
        clip=settings.privacy.clip if settings.privacy.hides_samples else inf,
        noise=noise,
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
    rank: int,
    num_samples: int,
    settings: Private,
    folder: Path,
    contents: Callable[[], Contents],
) -> Budget | None:
    """What the samples of a worker may spend in a run; None if there is no noise.

    Args:
        rank: the worker's number, for messages.
        num_samples: n.
        settings: of the run.
        folder: of this machine's ledger.
        contents: tells what the samples hold.

    Raises:
        BadInput: it is too small for a step, or the ledger cannot be had.
    """
    if not settings.privacy.hides_samples or settings.privacy.dp_noise == 0:
        return None
    schedule = Schedule.of_samples(rank, num_samples, settings)
    if settings.privacy.dp_repeatable:
        return _repeatable(
            settings, schedule, SeededSteps(known_to_all(settings.training.seed, rank))
        )
    return _remembered(settings, schedule, folder, contents())


def open_repeatable_clients(
    settings: Private, schedule: Schedule, steps: SeededSteps
) -> Budget | None:
    """What clients as wholes may spend in a run that remembers nothing; None without noise.

    Args:
        settings: of the run.
        schedule: from `Schedule.of_clients`.
        steps: those of the run's seed.

    Raises:
        BadInput: it is too small for a round.
    """
    if not settings.privacy.hides_clients or settings.privacy.dp_noise == 0:
        return None
    return _repeatable(settings, schedule, steps)


def open_clients_budget(
    settings: Private,
    schedule: Schedule,
    folder: Path,
    contents: Contents,
    taken: int,
    told: tuple[Past, ...] = (),
) -> Budget:
    """What clients as wholes may spend in a run, by what the server knows.

    A round is reserved by itself: it is long.

    Args:
        settings: of the run.
        schedule: from `Schedule.of_clients`.
        folder: of the server's ledger.
        contents: of their samples, or what stands for them.
        taken: how many rounds the run knows of.
        told: what hosts say of their clients' earlier runs.

    Raises:
        BadInput: it is too small for a round, or the ledger cannot be had, or is not the run's.
    """
    in_use = (
        f"another run spends of {schedule.whose}; wait for its end, or give --dp-ledger DIR if "
        "these are others"
    )
    return _remembered(settings, schedule, folder, contents, 1, in_use, taken, told)


def _repeatable(settings: Private, schedule: Schedule, steps: SeededSteps) -> Budget:
    budget = Budget(steps, settings, plan_of(settings.privacy, schedule, Known()))
    budget.load_state(steps.state())
    return budget


def _remembered(
    settings: Private,
    schedule: Schedule,
    folder: Path,
    contents: Contents,
    block: int = BLOCK,
    in_use: str = IN_USE,
    taken: int = 0,
    told: tuple[Past, ...] = (),
) -> Budget:
    def make_plan(known: Known) -> Plan:
        if known.taken < taken:
            raise BadInput(
                f"--dp-ledger {folder}: knows of {known.taken:,} rounds of {schedule.whose}, and "
                f"this run alone has had {taken:,}; copy it from the machine of its server"
            )
        return plan_of(settings.privacy, schedule, known, folder, told)

    ledger = Ledger(folder, contents, make_plan, block, in_use)
    run = ledger.run
    earlier = tuple(sorted({*ledger.earlier, *run.plan.told}))
    return Budget(ledger, settings, run.plan, run.steps, earlier)
