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
from mdgan.privacy.accountant import Charge, Past, best_order, epsilon_of, worst_of
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import CLIENT, Known, Ledger, Plan, look_up
from mdgan.privacy.planning import MOST_STEPS, Schedule, check_alike, leaves_something
from mdgan.privacy.settings import PrivacySettings

_PASTS = "pasts"
_MOST_PASTS = 256


class Round(msgspec.Struct, frozen=True):
    """What the server tells hosts before a round.

    Attributes:
        run: what names the run's plan, and tells nothing else.
        rounds: how many may still come, this one among them.
    """

    run: str
    noise: float
    rounds: int
    taken: int


class ClientsAccount:
    """The account of all samples of a host's clients.

    Args:
        schedule: from `Schedule.of_clients`, of any number of rounds.
    """

    def __init__(
        self, settings: PrivacySettings, schedule: Schedule, folder: Path, contents: Contents
    ) -> None:
        self._settings = settings
        self._schedule = schedule
        self._folder = folder
        self._contents = contents
        self._ledger: Ledger | None = None
        self._last: Round | None = None

    def tell(self) -> dict[str, Any]:
        """What the server should know: of each Rényi order the worst past, and no sample.

        Raises:
            BadInput: the ledger cannot be read.
        """
        worst = worst_of(look_up(self._folder, self._contents).pasts)
        return {_PASTS: msgspec.to_builtins(worst)} if worst else {}

    def begin_round(self, told: Mapping[str, Any]) -> None:
        """Counts a round; comes before the host hears whether a client of its own takes part.

        Raises:
            BadInput: the clients cannot afford what is planned, or the ledger cannot be had.
            ValueError: the message makes no sense.
        """
        now = msgspec.convert(told, Round)
        if not (0 < now.noise < inf and 0 < now.rounds <= MOST_STEPS):
            raise ValueError(f"a round with noise {now.noise} of {now.rounds}")
        if self._last is None or self._last.run != now.run:
            self.close()
            self._ledger = Ledger(self._folder, self._contents, partial(self._plan, now), block=1)
        ledger = self._ledger
        assert ledger is not None
        if ledger.run.plan.noise != now.noise:
            raise ValueError("its noise is not that of the rounds before")
        if self._last == now:  # the same round begins again
            return
        if ledger.taken >= ledger.run.plan.until:
            raise BadInput(
                f"{self._settings.dp_flag}: the server begins more rounds than it said would come"
            )
        ledger.key("round")  # writes it down
        ledger.advance()
        self._last = now

    def _plan(self, now: Round, known: Known) -> Plan:
        """The server's plan, if these clients can afford it."""
        settings, schedule = self._settings, self._schedule
        asked, last = json.dumps([now.run]), known.last
        if last is not None and last.plan.asked == asked and last.steps < last.plan.until:
            return last.plan
        check_alike(settings, schedule, known, self._folder)
        delta, limit = settings.dp_delta or 0.0, settings.dp_epsilon
        charge = Charge(now.noise, schedule.rate, now.rounds)
        if limit is not None:
            cost = epsilon_of(charge, delta, settings.dp_accountant, known.pasts)
            if cost > limit:
                before = epsilon_of(charge._replace(steps=0), delta, "rdp", known.pasts)
                raise BadInput(
                    f"--dp-epsilon {limit:g}: samples of clients here have spent {before:.3g} "
                    f"before (ledger {self._folder}), and {now.rounds:,} rounds with noise "
                    f"{now.noise:.3g} would make that {cost:.3g}; give more, or more --dp-noise"
                )
        order, kind = best_order(charge, delta), settings.dp_accountant
        until = now.rounds if limit is not None else MOST_STEPS
        return Plan(asked, CLIENT, kind, *charge, until, order)

    def close(self) -> None:
        """The host ends in order, or another run begins."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = None


def told_by(hosts: Iterable[Mapping[str, Any]], settings: PrivacySettings) -> tuple[Past, ...]:
    """What hosts say of their clients' earlier runs; what makes no sense is left out.

    So is what has spent all: such a host leaves by its own account when it hears of a round.
    """
    found: set[Past] = set()
    for told in hosts:
        try:
            pasts = msgspec.convert(told.get(_PASTS, []), list[Past])
        except ValueError:
            continue
        if len(pasts) <= _MOST_PASTS and all(_makes_sense(past) for past in pasts):
            found.update(past for past in pasts if leaves_something((past,), settings))
    return tuple(sorted(found))


def _makes_sense(past: Past) -> bool:
    return 1 < past.order < inf and all(
        isfinite(noise) and noise > 0 and 0 < rate <= 1 and 0 <= steps <= MOST_STEPS
        for noise, rate, steps in past.charges
    )
