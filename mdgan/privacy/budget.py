"""What a worker's samples, or clients as wholes, may spend in a run, and what they have spent.

Where the server adds the noise, it knows neither samples nor what became of them elsewhere. So each
host keeps their account itself: it tells the server what they have been through, for the server's
plan, and the server tells it of each round before the round begins. A host whose clients cannot
afford the rounds that are planned takes part in none of them, whatever the server makes of what it
was told.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch import Tensor
from typing_extensions import override

from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.privacy.accountant import (
    PrivacyCharge,
    PrivacyHistory,
    best_order,
    epsilon_of,
    epsilon_of_histories,
    replaced,
    worst_of,
)
from mdgan.privacy.canaries import Canaries
from mdgan.privacy.contents import Contents, Units
from mdgan.privacy.ledger import Ledger, Releases, look_up
from mdgan.privacy.ledger_view import CLIENT, LedgerView, Plan, most_steps
from mdgan.privacy.noise import with_noise
from mdgan.privacy.planning import MOST_STEPS, StepSchedule, check_alike, leaves_something, plan_of
from mdgan.privacy.random_stream import derived
from mdgan.privacy.real_half import DrawnUnits, Owned, PoissonHalf, SeededSteps, Steps
from mdgan.privacy.settings import PrivacySettings, Private
from mdgan.spelling import flag

_PATIENCE = 50.0  # ε is computed anew after this many times as long as it took before
_HISTORIES = "pasts"  # the field of a host's message
_MOST_HISTORIES = 256


class Spent(NamedTuple):
    """What a worker's samples have spent."""

    epsilon: float  # ε, for the run's δ, of all steps up to now; see docs/privacy.md
    replaced: float  # the same for a sample that may be another one instead of none


class RoundNotice(msgspec.Struct, frozen=True):
    """What the server tells hosts before a round: its plan, and how many may still come with it."""

    run: str
    noise: float
    rounds: int
    taken: int


class Budget(Steps):
    """Counts a worker's steps, and stops it before it spends more than it may."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Private,
        units: Units | None = None,
        held: Contents | None = None,
        schedule: StepSchedule | None = None,
    ) -> None:
        self._ledger, self._counts_first = ledger, bool(schedule and schedule.counts_share)
        self.units = units  # which of its samples belong together; None for clients as wholes
        self.releases = None  # what its samples have told once; None where they tell in steps
        if settings.tells_once and held is not None:
            self.releases = Releases(ledger.folder, held)
        self._settings = settings
        self._plan = plan = ledger.run.plan
        self.noise = schedule.noises(plan.noise)[1] if schedule else plan.noise  # σ
        self._earlier = tuple(sorted({*ledger.earlier, *plan.disclosed}))
        self._computed = -1, Spent(0.0, 0.0)
        self._due = 0.0
        number = settings.privacy.audit_canaries
        planted = 0 if settings.tells_once else None  # then no sample is cut
        self.canaries = (
            Canaries(number, plan.rate, settings.privacy.clip, self.noise, num_planted=planted)
            if number
            else None
        )

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
        return self._ledger.taken >= self._plan.until

    def key(self, use: str) -> bytes:
        if self.over:  # asked before each iteration; privacy must not hang on that alone
            raise RuntimeError("a worker that has spent its budget takes no step")
        if self._counts_first and self._ledger.taken % 2 == 0:
            self._ledger.taken += 1  # counts that are free: their step is spent all the same
        return self._ledger.key(use)

    def advance(self) -> None:
        self._ledger.taken += 1

    def keep(self, question: bytes, answer: Tensor) -> None:
        """Keeps what was told once; see `Releases`."""
        if self.releases is not None:
            self.releases.keep(self._ledger, question, answer)

    @override
    def state(self) -> dict[str, Tensor]:
        # What was spent is spent, whatever a run goes back to.
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        pass

    @property
    def iterations_left(self) -> int:
        """How many iterations of L steps the worker may still train."""
        if self.over and self.releases is not None and self.releases.has_told(self._plan.asked):
            return 1  # the same, once more
        left = self._plan.until - self._ledger.taken
        each = 1 if self._settings.tells_once else self._settings.training.local_steps
        return -(-left // 2) if self._counts_first else left // each

    @property
    def ends_early(self) -> bool:
        """Whether the worker is done by its own account although the run goes on without it."""
        training = self._settings.training
        goes_on = self._plan.until < training.iterations * training.local_steps
        return self.over and (goes_on or self._settings.tells_once)

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
    owned = shard
    if budget is not None and budget.units is not None and budget.units.num_repeats:
        owned = DrawnUnits(shard, budget.units, budget)
    return PoissonHalf(
        owned,
        budget or SeededSteps(known_to_all(settings.training.seed, rank, *stream)),
        settings.training.batch_size,
        clip=settings.privacy.clip if settings.privacy.hides_samples else inf,
        noise=0.0 if budget is None else budget.noise,
        tells_loss=settings.privacy.discloses("losses"),
        num_public=settings.privacy.public_samples(len(owned))
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
    counts_first: bool = False,
) -> Budget | None:
    """What the samples of a worker may spend in a run; None if there is no noise."""
    if not settings.privacy.covers_samples:
        return None
    held = contents()
    units = held.units(num_samples)
    schedule = StepSchedule.of_samples(rank, len(units), settings, counts_first)

    def make_plan(known: LedgerView) -> Plan:
        return plan_of(settings.privacy, schedule, known, ledger=folder)

    return Budget(Ledger(folder, held, make_plan), settings, units, held=held, schedule=schedule)


def open_clients_budget(
    settings: Private,
    schedule: StepSchedule,
    folder: Path,
    contents: Contents,
    taken: int,
    disclosed: tuple[PrivacyHistory, ...] = (),
) -> Budget:
    """What clients as wholes may spend, by what the server knows; a round is reserved alone."""

    def make_plan(known: LedgerView) -> Plan:
        if known.taken < taken:
            raise BadInput(
                flag("dp_ledger", folder),
                f"knows of {known.taken:,} rounds of {schedule.whose}, and this run alone has had "
                f"{taken:,}",
                "copy it from the machine of its server",
            )
        return plan_of(settings.privacy, schedule, known, ledger=folder, disclosed=disclosed)

    in_use = (
        f"another run spends of {schedule.whose}; wait for its end, or give "
        f"{flag('dp_ledger', 'DIR')} if these are others"
    )
    return Budget(Ledger(folder, contents, make_plan, block=1, in_use=in_use), settings)


class ClientsAccount:
    """The account of all samples of a host's clients."""

    def __init__(
        self, settings: PrivacySettings, schedule: StepSchedule, folder: Path, contents: Contents
    ) -> None:
        self._settings = settings
        self._schedule = schedule
        self._folder = folder
        self._contents = contents
        self._ledger: Ledger | None = None
        self._last: RoundNotice | None = None
        self._noise_key = b""

    def tell(self) -> dict[str, Any]:
        """What the server should know: of each Rényi order the worst history, and no sample."""
        worst = worst_of(look_up(self._folder, self._contents).histories)
        return {_HISTORIES: msgspec.to_builtins(worst)} if worst else {}

    def begin_round(self, told: Mapping[str, Any]) -> None:
        """Counts a round; comes before the host hears whether a client of its own takes part.

        Raises:
            BadInput: the clients cannot afford what is planned, or the ledger cannot be had.
            ValueError: the message makes no sense.
        """
        now = msgspec.convert(told, RoundNotice)
        if not (0 < now.noise < inf and 0 < now.rounds <= MOST_STEPS):
            raise ValueError(f"a round with noise {now.noise} of {now.rounds}")
        if self._ledger is None or self._last is None or self._last.run != now.run:
            self.close()
            self._ledger = Ledger(self._folder, self._contents, partial(self._plan, now), block=1)
        ledger = self._ledger
        if ledger.run.plan.noise != now.noise:
            raise ValueError("its noise is not that of the rounds before")
        if self._last == now:  # the same round begins again
            return
        if ledger.taken >= ledger.run.plan.until:
            raise BadInput(
                self._settings.dp_flag, "the server begins more rounds than it said would come"
            )
        self._noise_key = ledger.key("noise")  # writes it down
        ledger.taken += 1
        self._last = now

    def with_part_of_noise(
        self, updates: Mapping[int, Tensor], clip: float, sharers: int
    ) -> dict[int, Tensor]:
        """Adds to updates the noise that one of M sharers adds, all together; once a round.

        Args:
            updates: by client, of a norm of at most `clip`; they stay as they are.

        Returns:
            float64, on the lattice of the noise.

        Raises:
            BadInput: the server has not charged for the round.
        """
        key, self._noise_key = self._noise_key, b""
        if not key or self._last is None:
            raise BadInput(
                self._settings.dp_flag, "the server asks for a round that it has not charged for"
            )
        noise = self._last.noise / sqrt(sharers * len(updates))
        return {
            client: with_noise(
                given.double().flatten(), clip, noise, derived(key, b"%d" % client)
            ).view_as(given)
            for client, given in updates.items()
        }

    def _plan(self, now: RoundNotice, known: LedgerView) -> Plan:
        """The server's plan, if these clients can afford it."""
        settings = self._settings
        schedule = self._schedule
        asked = json.dumps([now.run])
        if (goes_on := known.plan_going_on(asked, 1)) is not None:
            return goes_on
        check_alike(settings, schedule, known, ledger=self._folder)
        delta, limit, kind = settings.dp_delta or 0.0, settings.dp_epsilon, settings.dp_accountant
        charge = PrivacyCharge(now.noise, schedule.rate, now.rounds)
        if limit is not None and (cost := epsilon_of(charge, delta, kind, known.histories)) > limit:
            before = epsilon_of_histories(known.histories, delta)
            raise BadInput(
                flag("dp_epsilon", f"{limit:g}"),
                f"samples of clients here have spent {before:.3g} before (ledger {self._folder}), "
                f"and {now.rounds:,} rounds with noise {now.noise:.3g} would make that {cost:.3g}",
                f"give more, or more {flag('dp_noise')}",
            )
        until = now.rounds if limit is not None else MOST_STEPS
        return Plan(asked, CLIENT, kind, *charge, until, best_order(charge, delta))

    def close(self) -> None:
        """The host ends in order, or another run begins."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = None


def disclosed_histories(
    hosts: Iterable[Mapping[str, Any]], settings: PrivacySettings
) -> tuple[PrivacyHistory, ...]:
    """What hosts say of their clients' earlier runs; what makes no sense is left out.

    So is what has spent all: such a host leaves by its own account when it hears of a round.
    """
    found: set[PrivacyHistory] = set()
    for told in hosts:
        try:
            histories = msgspec.convert(told.get(_HISTORIES, []), list[PrivacyHistory])
        except ValueError:
            continue
        if len(histories) <= _MOST_HISTORIES and all(map(_makes_sense, histories)):
            found.update(each for each in histories if leaves_something((each,), settings))
    return tuple(sorted(found))


def _makes_sense(history: PrivacyHistory) -> bool:
    return 1 < history.order < inf and all(
        isfinite(noise) and noise > 0 and 0 < rate <= 1 and 0 <= steps <= MOST_STEPS
        for noise, rate, steps in history.charges
    )
