"""What a worker's samples, or clients as wholes, may spend in a run, and what they have spent."""

import hashlib
import json
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.privacy.accountant import Charge, epsilon_of, joined, noise_for, steps_for
from mdgan.privacy.canaries import Canaries, num_planted
from mdgan.privacy.ledger import Content, Ledger, Plan, Sampled, fingerprint, ledger_folder
from mdgan.privacy.real_half import PoissonHalf, SeededSteps, rate_of
from mdgan.privacy.settings import PrivacySettings

_MOST_STEPS = 1 << 40
_PATIENCE = 50.0
"""ε is computed anew after this many times as long as it took before."""


class Spent(NamedTuple):
    """What a worker's samples have spent.

    Attributes:
        epsilon: ε, for the run's δ, of all steps up to now.
        noise: σ.
    """

    epsilon: float
    noise: float


class Schedule(NamedTuple):
    """The steps of a run.

    Attributes:
        whose: they are, in words for messages: `the samples of rank 3`.
        rate: q.
        num_units: how many iterations, or rounds, are planned.
        unit: steps of each.
    """

    whose: str
    rate: float
    num_units: int
    unit: int = 1

    @property
    def planned(self) -> int:
        """How many steps are planned."""
        return self.num_units * self.unit

    @classmethod
    def of_samples(cls, rank: int, num_samples: int, settings: PrivacySettings) -> "Schedule":
        """Of a worker's samples.

        Args:
            rank: the worker's number.
            num_samples: n.
            settings: of the run.
        """
        rate = rate_of(settings.batch_size, num_samples)
        whose = f"the samples of rank {rank}"
        return cls(whose, rate, settings.iterations, settings.local_steps)

    @classmethod
    def of_clients(cls, dataset: str, participation: float, num_rounds: int) -> "Schedule":
        """Of all clients as wholes: each round is a step.

        Args:
            dataset: the name of their data.
            participation: q.
            num_rounds: of the run.
        """
        return cls(f"the clients of {dataset}", participation, num_rounds)


class Budget:
    """Counts a worker's steps, and stops it before it spends more than it may.

    Args:
        steps: have the random numbers.
        settings: of the run.
        noise: σ of each step to come.
        rate: q.
        earlier: what was charged before.
        allowed: how many steps may be taken from now on.

    Attributes:
        canaries: that are drawn beside the samples, if the user wants some.
    """

    def __init__(
        self,
        steps: Ledger | SeededSteps,
        settings: PrivacySettings,
        noise: float,
        rate: float,
        earlier: tuple[Charge, ...],
        allowed: int,
    ) -> None:
        self._steps = steps
        self._settings = settings
        self._earlier = earlier
        self._of_a_step = Charge(noise, rate, 1)
        self._allowed = allowed
        self._count = 0
        self._told = (-1, 0.0)
        self._due = 0.0
        number = settings.audit_canaries
        planted = num_planted(number)
        self.canaries = (
            Canaries(number, rate, settings.clip, noise, num_planted=planted) if number else None
        )

    @property
    def noise(self) -> float:
        """σ."""
        return self._of_a_step.noise

    @property
    def taken(self) -> int:
        """How many steps were taken, in all runs that are remembered."""
        steps = self._steps
        return steps.content.taken if isinstance(steps, Ledger) else steps.count

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
        return (self._allowed - self._count) // self._settings.local_steps

    @property
    def limit(self) -> float:
        """ε once all allowed steps are taken."""
        return self._epsilon(self._allowed)

    def _epsilon(self, steps: int) -> float:
        settings = self._settings
        charges = joined((*self._earlier, self._of_a_step._replace(steps=steps)))
        return epsilon_of(charges, settings.dp_delta or 0.0, settings.dp_accountant)

    def spent(self, *, exactly: bool = True) -> Spent:
        """What is spent up to now.

        Args:
            exactly: of all steps; else possibly of some fewer, which takes no time.
        """
        computed, epsilon = self._told
        begin = time.monotonic()
        if self._count != computed and (exactly or begin >= self._due):
            epsilon = self._epsilon(self._count)
            self._told = self._count, epsilon
            now = time.monotonic()
            self._due = now + _PATIENCE * (now - begin)
        return Spent(epsilon, self.noise)

    def close(self) -> None:
        """The process ends in order."""
        if self.canaries is not None:
            self.canaries.close()
        if isinstance(self._steps, Ledger):
            self._steps.close()


def make_half(
    shard: Sampled, rank: int, settings: PrivacySettings, budget: Budget | None, *stream: int
) -> PoissonHalf | None:
    """How a worker learns from its samples; None for shuffled batches.

    Args:
        shard: its samples.
        rank: its number.
        settings: of the run.
        budget: of its samples, if they have one.
        stream: more that decides the random numbers where there is none: the round.
    """
    if not settings.draws_poisson:
        return None
    steps = budget or SeededSteps(known_to_all(settings.seed, rank, *stream))
    noise = 0.0 if budget is None else budget.noise
    return PoissonHalf(
        shard,
        steps,
        settings.batch_size,
        clip=settings.clip if settings.hides_samples else inf,
        noise=noise,
        tells_loss=settings.tells("losses"),
        canaries=None if budget is None else budget.canaries,
    )


def known_to_all(seed: int, rank: int, *stream: int) -> bytes:
    """What steps have instead of a secret where all may know their numbers; rank 0 for rounds."""
    return derive_seed(seed, "real halves", rank, *stream).to_bytes(8, "big")


def open_budget(
    shard: Sampled, rank: int, settings: PrivacySettings, folder: Path
) -> Budget | None:
    """What the samples of a worker may spend in a run; None if there is no noise.

    Args:
        shard: its samples.
        rank: its number, for messages.
        settings: of the run.
        folder: of this machine's ledgers.

    Raises:
        BadInput: it is too small for a step, or its ledger cannot be had.
    """
    if not settings.hides_samples or settings.dp_noise == 0:
        return None
    schedule = Schedule.of_samples(rank, len(shard), settings)
    if settings.dp_repeatable:
        return _repeatable(settings, schedule, SeededSteps(known_to_all(settings.seed, rank)))
    return _remembered(settings, schedule, Ledger(folder, fingerprint(shard)))


def open_clients_budget(
    settings: PrivacySettings, schedule: Schedule, repeatable: SeededSteps, taken: int
) -> Budget | None:
    """What clients as wholes may spend in a run; None if there is no noise.

    A round is reserved by itself: it is long.

    Args:
        settings: of the run.
        schedule: from `Schedule.of_clients`.
        repeatable: steps for `--dp-repeatable`.
        taken: how many the run knows of.

    Raises:
        BadInput: it is too small for a round, or the ledger cannot be had, or is not the run's.
    """
    if not settings.hides_clients or settings.dp_noise == 0:
        return None
    if settings.dp_repeatable:
        return _repeatable(settings, schedule, repeatable)
    path = clients_ledger(settings, schedule)
    in_use = (
        f"another run spends of {schedule.whose}; wait for its end, or give --dp-ledger DIR if "
        "these are others"
    )
    ledger = Ledger(path.parent, path.stem, 1, in_use)
    if ledger.content.taken < taken:
        ledger.close()
        raise BadInput(
            f"--dp-ledger {path}: knows of {ledger.content.taken:,} rounds of {schedule.whose}, "
            f"and this run alone has had {taken:,}; copy the file from the machine of its server"
        )
    return _remembered(settings, schedule, ledger)


def clients_ledger(settings: PrivacySettings, schedule: Schedule) -> Path:
    """The ledger of all clients with data of one name.

    The server does not know what they hold. Where other clients have data of the same name the
    ledger counts too much, and never too little.
    """
    name = hashlib.sha256(schedule.whose.encode()).hexdigest()
    return ledger_folder(settings) / f"{name}.json"


def _repeatable(settings: PrivacySettings, schedule: Schedule, steps: SeededSteps) -> Budget:
    noise, allowed = plan(settings, schedule, ())
    budget = Budget(steps, settings, noise, schedule.rate, (), allowed)
    budget.load_state(steps.state())
    return budget


def _remembered(settings: PrivacySettings, schedule: Schedule, ledger: Ledger) -> Budget:
    try:
        content = ledger.content
        planned = plan_of(settings, schedule, content, ledger.path)
        ledger.begin(planned, schedule.rate)
    except BaseException:
        ledger.close()
        raise
    allowed = planned.until - content.taken
    return Budget(ledger, settings, planned.noise, schedule.rate, content.charges, allowed)


def plan_of(
    settings: PrivacySettings, schedule: Schedule, content: Content | None, path: Path
) -> Plan:
    """What steps may be taken, by their ledger: it goes on with the last plan if that is the same.

    Args:
        settings: of the run.
        schedule: the run's steps.
        content: of the ledger; None if there is none yet.
        path: of the ledger, for messages.

    Raises:
        BadInput: not even one iteration, or round, is left.
    """
    asked = json.dumps(
        [
            *(settings.dp_epsilon, settings.dp_delta, settings.dp_noise, settings.dp_accountant),
            *(schedule.rate, schedule.num_units, schedule.unit),
        ]
    )
    earlier, taken = ((), 0) if content is None else (content.charges, content.taken)
    last = None if content is None else content.plan
    if last is not None and last.asked == asked and taken + schedule.unit <= last.until:
        return last
    noise, allowed = plan(settings, schedule, earlier, path)
    return Plan(asked, noise, taken + allowed)


def plan(
    settings: PrivacySettings,
    schedule: Schedule,
    earlier: tuple[Charge, ...],
    ledger: Path | None = None,
) -> tuple[float, int]:
    """σ, and how many steps may be taken.

    Args:
        settings: of the run.
        schedule: the run's steps.
        earlier: what was charged before.
        ledger: where that stands.

    Raises:
        BadInput: not even one iteration, or round.
    """
    epsilon, delta, kind = settings.dp_epsilon, settings.dp_delta or 0.0, settings.dp_accountant
    whose, rate, planned = schedule.whose, schedule.rate, schedule.planned
    if epsilon is None:
        return settings.dp_noise or inf, _MOST_STEPS
    spent = epsilon_of(earlier, delta, kind)
    where = "" if ledger is None else f" (ledger {ledger})"
    if spent >= epsilon:
        raise BadInput(
            f"--dp-epsilon {epsilon:g}: {whose} have spent {spent:.3g} before{where}; give more, "
            "or where the data are public, --dp-repeatable"
        )
    if settings.dp_noise is None:
        try:
            return noise_for(epsilon, delta, rate, planned, earlier, kind), planned
        except BadInput as error:
            before = f"; before, {whose} have spent {spent:.3g}{where}" if spent else ""
            raise BadInput(f"{error}{before}") from error
    noise = settings.dp_noise
    allowed = steps_for(epsilon, delta, rate, noise, earlier, kind, planned)
    if allowed < schedule.unit:
        raise BadInput(
            f"--dp-epsilon {epsilon:g}: too small for one step of {whose} with --dp-noise "
            f"{noise:g}{', after ' + format(spent, '.3g') + where if spent else ''}; give more of "
            "either"
        )
    return noise, allowed
