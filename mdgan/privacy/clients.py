"""What a host remembers of its clients' samples where the server adds the noise.

The server knows neither samples nor what became of them elsewhere. So each host keeps their account
itself: it tells the server what they have been through, for the server's plan, and the server tells
it of each round before the round begins. A host whose clients cannot afford the rounds that are
planned takes part in none of them, whatever the server makes of what it was told.
"""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import msgspec

from mdgan.errors import BadInput
from mdgan.privacy.accountant import (
    PrivacyCharge,
    PrivacyHistory,
    best_order,
    epsilon_of,
    epsilon_of_histories,
    worst_of,
)
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import CLIENT, Ledger, LedgerView, Plan, look_up
from mdgan.privacy.planning import MOST_STEPS, StepSchedule, check_alike, leaves_something
from mdgan.privacy.settings import PrivacySettings

_HISTORIES = "pasts"
"""The field of a host's message."""
_MOST_HISTORIES = 256


class RoundNotice(msgspec.Struct, frozen=True):
    """What the server tells hosts before a round: its plan, and how many may still come with it."""

    run: str
    noise: float
    rounds: int
    taken: int


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
                f"{self._settings.dp_flag}: the server begins more rounds than it said would come"
            )
        ledger.key("round")  # writes it down
        ledger.taken += 1
        self._last = now

    def _plan(self, now: RoundNotice, known: LedgerView) -> Plan:
        """The server's plan, if these clients can afford it."""
        settings, schedule, asked = self._settings, self._schedule, json.dumps([now.run])
        if (goes_on := known.plan_going_on(asked, 1)) is not None:
            return goes_on
        check_alike(settings, schedule, known, self._folder)
        delta, limit, kind = settings.dp_delta or 0.0, settings.dp_epsilon, settings.dp_accountant
        charge = PrivacyCharge(now.noise, schedule.rate, now.rounds)
        if limit is not None and (cost := epsilon_of(charge, delta, kind, known.histories)) > limit:
            before = epsilon_of_histories(known.histories, delta)
            raise BadInput(
                f"--dp-epsilon {limit:g}: samples of clients here have spent {before:.3g} "
                f"before (ledger {self._folder}), and {now.rounds:,} rounds with noise "
                f"{now.noise:.3g} would make that {cost:.3g}; give more, or more --dp-noise"
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
