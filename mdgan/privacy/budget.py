"""Budgets: how much ε a worker's samples, or whole clients, may spend in a run, and have spent.

A server that adds the noise knows neither the clients' samples nor the other runs of these samples.
So each host keeps their account. It tells the server their histories, from which the server makes
its plan. The server announces each round before the round begins. A host whose clients cannot
afford the planned rounds takes part in none of them, whatever the server's plan says.
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

_PATIENCE = 50.0  # ε is computed again after this many times the duration of the last computation
_HISTORIES = "pasts"  # a field of a host's message
_MOST_HISTORIES = 256


class Spent(NamedTuple):
    """The ε that a worker's samples have spent."""

    epsilon: float  # ε of all steps up to now, for the run's δ; see docs/privacy.md
    replaced: float  # the same if a sample may be replaced by another, instead of left out


class RoundNotice(msgspec.Struct, frozen=True):
    """The server's announcement of a round to hosts, with the rest of its plan."""

    run: str
    noise: float
    rounds: int  # how many rounds may still come, with this one
    taken: int  # how many have begun


class Budget(Steps):
    """Counts a worker's steps, and stops the worker before it spends more than its plan allows."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Private,
        units: Units | None = None,
        held: Contents | None = None,
        schedule: StepSchedule | None = None,
    ) -> None:
        self._ledger, self._counts_first = ledger, bool(schedule and schedule.counts_share)
        self.units = units  # of the worker's samples; None for clients as wholes
        self.releases = None  # stored answers of workers that answer once; None for others
        if settings.tells_once and held is not None:
            self.releases = Releases(ledger.folder, held)
        self._settings = settings
        self._plan = plan = ledger.run.plan
        self.noise = schedule.noises(plan.noise)[1] if schedule else plan.noise  # σ
        self._earlier = tuple(sorted({*ledger.earlier, *plan.disclosed}))
        self._computed = -1, Spent(0.0, 0.0)
        self._due = 0.0
        number = settings.privacy.audit_canaries
        planted = 0 if settings.tells_once else None  # a worker that answers once cuts no gradient
        self.canaries = (
            Canaries(number, plan.rate, settings.privacy.clip, self.noise, num_planted=planted)
            if number
            else None
        )

    @property
    def round(self) -> RoundNotice:
        """The announcement of the next round."""
        run, taken = self._ledger.run, self._ledger.taken
        name = hashlib.sha256(run.name + run.number.to_bytes(8, "big")).hexdigest()[:32]
        until = min(self._plan.until, max(self._plan.planned, taken + 1))
        return RoundNotice(name, self.noise, until - taken, taken)

    @property
    def taken(self) -> int:
        """How many steps were taken in all runs that the ledger knows."""
        return self._ledger.taken + most_steps(self._ledger.earlier)

    @property
    def over(self) -> bool:
        return self._ledger.taken >= self._plan.until

    def key(self, use: str) -> bytes:
        if self.over:  # callers ask before each iteration, but privacy must not depend on that
            raise RuntimeError("a worker that has spent its budget takes no step")
        if self._counts_first and self._ledger.taken % 2 == 0:
            self._ledger.taken += 1  # repeated counts are free, but their step is spent
        return self._ledger.key(use)

    def advance(self) -> None:
        self._ledger.taken += 1

    def keep(self, question: bytes, answer: Tensor) -> None:
        """Stores the answer of a worker that answers once; see `Releases`."""
        if self.releases is not None:
            self.releases.keep(self._ledger, question, answer)

    @override
    def state(self) -> dict[str, Tensor]:
        return {}  # ε stays spent, whatever checkpoint a run goes back to

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        pass

    @property
    def iterations_left(self) -> int:
        """How many iterations of L steps the worker may still train."""
        if self.over and self.releases is not None and self.releases.has_told(self._plan.asked):
            return 1  # the stored answer, once more
        steps_left = self._plan.until - self._ledger.taken
        local_steps = 1 if self._settings.tells_once else self._settings.training.local_steps
        return -(-steps_left // 2) if self._counts_first else steps_left // local_steps

    @property
    def ends_early(self) -> bool:
        """Whether the worker's budget is spent before the run ends."""
        training = self._settings.training
        goes_on = self._plan.until < training.iterations * training.local_steps
        return self.over and (goes_on or self._settings.tells_once)

    @property
    def limit(self) -> float:
        """ε of all steps that the plan allows."""
        return self._spent(self._plan.until).epsilon

    def _spent(self, steps: int) -> Spent:
        plan, settings, earlier = self._plan, self._settings, self._earlier
        charge = PrivacyCharge(plan.noise, plan.rate, steps)
        if steps > plan.planned:  # a run without a bound on ε may go on; see `epsilon_of`
            earlier = earlier or (PrivacyHistory(plan.order, ()),)
        delta, kind = settings.privacy.dp_delta or 0.0, settings.privacy.dp_accountant
        worse, histories = replaced(charge, earlier)
        return Spent(
            epsilon_of(charge, delta, kind, earlier), epsilon_of(worse, delta, "rdp", histories)
        )

    def spent(self, *, exactly: bool = True) -> Spent:
        """What is spent up to now; unless `exactly`, perhaps an older value, to save time."""
        (steps, spent), taken = self._computed, self._ledger.taken
        begin = time.monotonic()
        if taken != steps and (exactly or begin >= self._due):
            spent = self._spent(taken)
            self._computed = taken, spent
            now = time.monotonic()
            if steps >= 0:  # the first computation takes long, since it imports Opacus
                self._due = now + _PATIENCE * (now - begin)
        return spent

    def close(self) -> None:
        """Writes canaries and the exact number of steps, as the process ends in order."""
        if self.canaries is not None:
            self.canaries.close()
        self._ledger.close()


def make_half(
    shard: Owned, rank: int, settings: Private, budget: Budget | None, *stream: int
) -> PoissonHalf | None:
    """Makes the real half of a worker's steps; None if its batches are shuffled."""
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
    """The seed of steps whose random numbers need no secret; rank 0 is for rounds."""
    return derive_seed(seed, "real halves", rank, *stream).to_bytes(8, "big")


def open_budget(
    rank: int,
    num_samples: int,
    settings: Private,
    folder: Path,
    contents: Callable[[], Contents],
    counts_first: bool = False,
) -> Budget | None:
    """Opens the budget of a worker's samples for a run; None if workers add no noise."""
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
    """Opens the server's budget for whole clients; rounds are reserved one by one."""

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
    """A host's account of its clients' samples, for noise that hides whole clients."""

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
        """The message to the server: the worst history of each Rényi order, and no sample."""
        worst = worst_of(look_up(self._folder, self._contents).histories)
        return {_HISTORIES: msgspec.to_builtins(worst)} if worst else {}

    def begin_round(self, told: Mapping[str, Any]) -> None:
        """Charges a round, before the host hears whether any of its clients takes part.

        Raises:
            BadInput: the clients cannot afford the planned rounds, or the ledger cannot be opened.
            ValueError: the message is invalid.
        """
        notice = msgspec.convert(told, RoundNotice)
        if not (0 < notice.noise < inf and 0 < notice.rounds <= MOST_STEPS):
            raise ValueError(f"a round with noise {notice.noise} of {notice.rounds}")
        if self._ledger is None or self._last is None or self._last.run != notice.run:
            self.close()
            make_plan = partial(self._plan, notice)
            self._ledger = Ledger(self._folder, self._contents, make_plan, block=1)
        ledger = self._ledger
        if ledger.run.plan.noise != notice.noise:
            raise ValueError("its noise is not that of the rounds before")
        if self._last == notice:  # the server begins the same round again
            return
        if ledger.taken >= ledger.run.plan.until:
            raise BadInput(
                self._settings.dp_flag, "the server begins more rounds than it said would come"
            )
        self._noise_key = ledger.key("noise")  # reserves the round on disk
        ledger.taken += 1
        self._last = notice

    def with_part_of_noise(
        self, updates: Mapping[int, Tensor], clip: float, sharers: int
    ) -> dict[int, Tensor]:
        """Adds one sharer's part of the noise, divided among its clients' updates; once a round.

        Args:
            updates: by client, with norms up to `clip`; not modified.

        Returns:
            Noisy updates, float64, on the lattice of the noise.

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
                update.double().flatten(), clip, noise, derived(key, b"%d" % client)
            ).view_as(update)
            for client, update in updates.items()
        }

    def _plan(self, notice: RoundNotice, known: LedgerView) -> Plan:
        """The server's plan; raises BadInput if these clients cannot afford it."""
        settings = self._settings
        schedule = self._schedule
        asked = json.dumps([notice.run])
        if (goes_on := known.plan_going_on(asked, 1)) is not None:
            return goes_on
        check_alike(settings, schedule, known, ledger=self._folder)
        delta, limit, kind = settings.dp_delta or 0.0, settings.dp_epsilon, settings.dp_accountant
        charge = PrivacyCharge(notice.noise, schedule.rate, notice.rounds)
        if limit is not None and (cost := epsilon_of(charge, delta, kind, known.histories)) > limit:
            before = epsilon_of_histories(known.histories, delta)
            raise BadInput(
                flag("dp_epsilon", f"{limit:g}"),
                f"samples of clients here have spent {before:.3g} before (ledger {self._folder}), "
                f"and {notice.rounds:,} rounds with noise {notice.noise:.3g} would make that "
                f"{cost:.3g}",
                f"give more, or more {flag('dp_noise')}",
            )
        until = notice.rounds if limit is not None else MOST_STEPS
        return Plan(asked, CLIENT, kind, *charge, until, best_order(charge, delta))

    def close(self) -> None:
        """Closes the ledger, as the host ends in order or another run begins."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = None


def disclosed_histories(
    hosts: Iterable[Mapping[str, Any]], settings: PrivacySettings
) -> tuple[PrivacyHistory, ...]:
    """Histories of clients as their hosts report them, without invalid ones.

    It also leaves out histories that have spent all of ε: such a host leaves by its own account as
    soon as a round is announced.
    """
    accepted: set[PrivacyHistory] = set()
    for message in hosts:
        try:
            histories = msgspec.convert(message.get(_HISTORIES, []), list[PrivacyHistory])
        except ValueError:
            continue
        if len(histories) <= _MOST_HISTORIES and all(map(_makes_sense, histories)):
            accepted.update(past for past in histories if leaves_something((past,), settings))
    return tuple(sorted(accepted))


def _makes_sense(history: PrivacyHistory) -> bool:
    return 1 < history.order < inf and all(
        isfinite(noise) and noise > 0 and 0 < rate <= 1 and 0 <= steps <= MOST_STEPS
        for noise, rate, steps in history.charges
    )
