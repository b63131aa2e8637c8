"""How much noise the steps of a run have, and how many there may be, after all earlier runs."""

import json
import os
from math import inf
from pathlib import Path
from typing import NamedTuple

from mdgan.errors import BadInput
from mdgan.privacy.accountant import (
    Charge,
    Past,
    best_order,
    epsilon_of,
    noise_for,
    steps_for,
    tolerance,
)
from mdgan.privacy.ledger import CLIENT, SAMPLE, Known, Plan
from mdgan.privacy.real_half import rate_of
from mdgan.privacy.settings import PrivacySettings, Private
from mdgan.settings.machine import path_of

MOST_STEPS = 1 << 40
"""Where nothing bounds them."""


class Schedule(NamedTuple):
    """The steps of a run.

    Attributes:
        whose: the owner of the steps, as messages name it: `the samples of rank 3`.
        rate: q.
        num_units: how many iterations, or rounds, are planned.
        unit: steps of each.
        hides: what the noise hides, a `SAMPLE` or a `CLIENT`.
    """

    whose: str
    rate: float
    num_units: int
    unit: int = 1
    hides: str = SAMPLE

    @property
    def planned(self) -> int:
        """How many steps are planned."""
        return self.num_units * self.unit

    @classmethod
    def of_samples(cls, rank: int, num_samples: int, settings: Private) -> "Schedule":
        """Of a worker's samples.

        Args:
            rank: the worker's number.
            num_samples: n.
            settings: of the run.
        """
        rate = rate_of(settings.training.batch_size, settings.privacy.public_samples(num_samples))
        whose = f"the samples of rank {rank}"
        return cls(whose, rate, settings.training.iterations, settings.training.local_steps)

    @classmethod
    def of_clients(cls, dataset: str, participation: float, num_rounds: int) -> "Schedule":
        """Of all clients as wholes: each round is a step.

        Args:
            dataset: the name of their data.
            participation: q.
            num_rounds: of the run.
        """
        return cls(f"the clients of {dataset}", participation, num_rounds, hides=CLIENT)


def ledger_folder(settings: PrivacySettings) -> Path:
    """Where this machine remembers what its samples have spent.

    Raises:
        BadInput: the user has no home folder and names none.
    """
    if settings.dp_ledger is not None:
        return path_of(settings.dp_ledger)
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        # The XDG specification: relative paths there are to be ignored.
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise BadInput(
            f"{settings.dp_flag}: there is no home folder to remember in what samples have spent; "
            "give --dp-ledger DIR"
        ) from error
    return base / "mdgan" / "privacy"


def plan_of(
    settings: PrivacySettings,
    schedule: Schedule,
    known: Known,
    folder: Path | None = None,
    told: tuple[Past, ...] = (),
) -> Plan:
    """What steps may be taken, by their ledger: it goes on with the last plan if that is the same.

    Args:
        settings: of the run.
        schedule: the run's steps.
        known: what the ledger knows.
        folder: of the ledger, for messages.
        told: more that the same units have been through.

    Raises:
        BadInput: not even one iteration, or round, is left.
    """
    asked = json.dumps(
        [
            *(settings.dp_epsilon, settings.dp_delta, settings.dp_noise, settings.dp_accountant),
            *(schedule.rate, schedule.num_units, schedule.unit, schedule.hides),
        ]
    )
    last = known.last
    if (
        last is not None
        and last.plan.asked == asked
        and last.steps + schedule.unit <= last.plan.until
    ):
        return last.plan
    check_alike(settings, schedule, known, folder)
    earlier = tuple(sorted({*known.pasts, *told}))
    noise, until = plan(settings, schedule, earlier, folder)
    planned, delta = min(schedule.planned, until), settings.dp_delta or 0.0
    order = best_order(Charge(noise, schedule.rate, planned), delta)
    kind = settings.dp_accountant
    return Plan(asked, schedule.hides, kind, noise, schedule.rate, planned, until, order, told)


def check_alike(
    settings: PrivacySettings, schedule: Schedule, known: Known, folder: Path | None
) -> None:
    """Checks that earlier runs can be added up with this one.

    Args:
        settings: of the run.
        schedule: the run's steps.
        known: what the ledger knows.
        folder: of the ledger, for messages.

    Raises:
        BadInput: they hid something else.
    """
    if others := known.units - {schedule.hides}:
        (other,) = others
        why = {
            CLIENT: "what a single sample spent there is not known",
            SAMPLE: "noise for samples hides no client",
        }
        raise BadInput(
            f"{settings.dp_flag}: {schedule.whose} took part in runs with --dp-unit {other} "
            f"(ledger {folder}): {why[other]}, so they have no epsilon with --dp-unit "
            f"{schedule.hides}; give --dp-unit {other}, or data that took part in none"
        )


def spent_before(settings: PrivacySettings, known: Known) -> float:
    """ε of all earlier runs of some samples, for the run's δ."""
    delta, last = settings.dp_delta or 0.0, known.last
    if last is not None and not known.before_last and last.steps <= last.plan.planned:
        charge = Charge(last.plan.noise, last.plan.rate, last.steps)
        return epsilon_of(charge, delta, last.plan.kind)
    return epsilon_of(Charge(1.0, 1.0, 0), delta, "rdp", known.pasts)


def leaves_something(earlier: tuple[Past, ...], settings: PrivacySettings) -> bool:
    """Whether a plan may follow what some units have been through.

    Args:
        earlier: that.
        settings: of the run.
    """
    epsilon, delta = settings.dp_epsilon, settings.dp_delta or 0.0
    spent = epsilon_of(Charge(1.0, 1.0, 0), delta, "rdp", earlier)
    return epsilon is None or spent <= epsilon - tolerance(epsilon)


def plan(
    settings: PrivacySettings,
    schedule: Schedule,
    earlier: tuple[Past, ...],
    ledger: Path | None = None,
) -> tuple[float, int]:
    """σ, and how many steps may be taken.

    Args:
        settings: of the run.
        schedule: the run's steps.
        earlier: what the same units have been through before.
        ledger: where that stands.

    Raises:
        BadInput: not even one iteration, or round.
    """
    epsilon, delta, kind = settings.dp_epsilon, settings.dp_delta or 0.0, settings.dp_accountant
    whose, rate, planned = schedule.whose, schedule.rate, schedule.planned
    if earlier and kind == "prv":
        raise BadInput(
            f"--dp-accountant prv: {whose} took part in earlier runs (ledger {ledger}), and this "
            "accountant cannot add up several runs; give --dp-accountant rdp"
        )
    if epsilon is None:
        return settings.dp_noise or inf, MOST_STEPS
    spent = epsilon_of(Charge(1.0, rate, 0), delta, kind, earlier)
    where = "" if ledger is None else f" (ledger {ledger})"
    if not leaves_something(earlier, settings):
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
