"""Plans the noise and the number of a run's steps so that all runs together stay within ε."""

import json
import os
from math import inf, sqrt
from pathlib import Path
from typing import NamedTuple

from mdgan.errors import BadInput
from mdgan.privacy.accountant import (
    PrivacyCharge,
    PrivacyHistory,
    best_order,
    epsilon_of,
    epsilon_of_histories,
    noise_for,
    steps_for,
    tolerance,
)
from mdgan.privacy.ledger_view import CLIENT, SAMPLE, LedgerView, Plan
from mdgan.privacy.real_half import rate_of
from mdgan.privacy.settings import PrivacySettings, Private
from mdgan.settings.machine import path_of
from mdgan.spelling import flag, key

MOST_STEPS = 1 << 40  # if nothing bounds the number of steps
_MOST_SHARE = 0.5


class StepSchedule(NamedTuple):
    """The steps that a run would take: so many units (iterations or rounds) of `unit` steps."""

    whose: str  # names the samples or clients, for messages
    rate: float
    num_units: int
    unit: int = 1
    hides: str = SAMPLE
    # How many steps must be left of a plan for the run to go on with it, if not a unit; 0 if a
    # worker that answers once may repeat the answer of a finished plan.
    rest: int | None = None
    # The share of the first of two steps (counts) in what both spend; 0 if no counts come first.
    counts_share: float = 0.0

    @classmethod
    def of_samples(
        cls, rank: int, num_units: int, settings: Private, counts_first: bool = False
    ) -> "StepSchedule":
        """The schedule of a worker that holds this many units; with counts if they come first."""
        whose, share = f"the samples of rank {rank}", settings.privacy.dp_encoding_share
        if settings.tells_once and counts_first and share > _MOST_SHARE:
            # With a larger share, the counts alone would spend more than is charged for them.
            why = f"counts take {_MOST_SHARE:g} at most where one sum is all that follows"
            raise BadInput(key("dp_encoding_share", share), why, "give less")
        if settings.tells_once:
            return cls(whose, 1.0, 1, 1 + counts_first, rest=0, counts_share=share * counts_first)
        rate = rate_of(settings.training.batch_size, settings.privacy.public_samples(num_units))
        return cls(whose, rate, settings.training.iterations, settings.training.local_steps)

    def noises(self, noise: float) -> tuple[float, float]:
        """σ₁ of counts and σ₂ of the next step, for a plan with σ: 1/σ₁² + 1/σ₂² = 2/σ²."""
        share = self.counts_share or 0.5
        return noise / sqrt(2 * share), noise / sqrt(2 * (1 - share))

    @classmethod
    def of_clients(cls, dataset: str, participation: float, num_rounds: int) -> "StepSchedule":
        """The schedule of all clients as wholes: each round is a step."""
        return cls(f"the clients of {dataset}", participation, num_rounds, hides=CLIENT)


def ledger_folder(settings: PrivacySettings) -> Path:
    """The folder of this machine's ledger."""
    if settings.dp_ledger is not None:
        return path_of(settings.dp_ledger)
    state_home = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        # The XDG specification says to ignore relative paths.
        base = state_home if state_home.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        why = "there is no home folder to remember in what samples have spent"
        raise BadInput(settings.dp_flag, why, f"give {flag('dp_ledger', 'DIR')}") from error
    return base / "mdgan" / "privacy"


def plan_of(
    settings: PrivacySettings,
    schedule: StepSchedule,
    known: LedgerView,
    ledger: Path,
    disclosed: tuple[PrivacyHistory, ...] = (),
) -> Plan:
    """The plan of a run by its ledger: the last plan if it is for equal settings, or a new one."""
    asked = json.dumps(
        [
            *(settings.dp_epsilon, settings.dp_delta, settings.dp_noise, settings.dp_accountant),
            *(schedule.rate, schedule.num_units, schedule.unit, schedule.hides),
            *([schedule.counts_share] if schedule.counts_share else []),
        ]
    )
    steps = schedule.unit if schedule.rest is None else schedule.rest
    goes_on = known.plan_going_on(asked, steps)
    if goes_on is not None and _is_within(settings, goes_on, known):
        return goes_on
    check_alike(settings, schedule, known, ledger=ledger)
    earlier = tuple(sorted({*known.histories, *disclosed}))
    noise, until = _noise_and_steps(settings, schedule, earlier, ledger=ledger)
    planned = min(schedule.num_units * schedule.unit, until)
    order = best_order(PrivacyCharge(noise, schedule.rate, planned), settings.dp_delta or 0.0)
    kind = settings.dp_accountant
    return Plan(asked, schedule.hides, kind, noise, schedule.rate, planned, until, order, disclosed)


def _is_within(settings: PrivacySettings, plan: Plan, known: LedgerView) -> bool:
    """Whether all of a plan is still within ε, since samples may have spent in other runs."""
    earlier, limit = tuple(sorted({*known.before_last, *plan.disclosed})), settings.dp_epsilon
    if limit is None or not earlier:
        return True
    charge = PrivacyCharge(plan.noise, plan.rate, plan.until)
    cost = epsilon_of(charge, settings.dp_delta or 0.0, settings.dp_accountant, earlier=earlier)
    return cost <= limit + tolerance(limit)


def check_alike(
    settings: PrivacySettings, schedule: StepSchedule, known: LedgerView, ledger: Path
) -> None:
    """Raises BadInput if ε of earlier runs and of this one cannot be added up."""
    if known.several:
        raise BadInput(
            settings.dp_flag,
            f"{schedule.whose} were trained on one by one before, and persons have several of "
            f"them now (ledger {ledger}): what a person has spent there is not known",
            "go on without the person, or with persons who took part in no such run",
        )
    if differing := known.units - {schedule.hides}:
        (other,) = differing
        why = {
            CLIENT: "what a single sample spent there is not known",
            SAMPLE: "noise for samples hides no client",
        }
        raise BadInput(
            settings.dp_flag,
            f"{schedule.whose} took part in runs with {flag('dp_unit', other)} (ledger {ledger}): "
            f"{why[other]}, so they have no epsilon with {flag('dp_unit', schedule.hides)}",
            f"give {flag('dp_unit', other)}, or data that took part in none",
        )


def spent_before(dp_delta: float | None, known: LedgerView) -> float:
    """ε of all earlier runs of some samples, for δ."""
    delta, last = dp_delta or 0.0, known.last
    if last is not None and not known.before_last and last.steps <= last.plan.planned:
        charge = PrivacyCharge(last.plan.noise, last.plan.rate, last.steps)
        return epsilon_of(charge, delta, last.plan.kind)
    return epsilon_of_histories(known.histories, delta)


def leaves_something(earlier: tuple[PrivacyHistory, ...], settings: PrivacySettings) -> bool:
    """Whether these histories leave any ε for another plan."""
    epsilon, spent = settings.dp_epsilon, epsilon_of_histories(earlier, settings.dp_delta or 0.0)
    return epsilon is None or spent <= epsilon - tolerance(epsilon)


def _noise_and_steps(
    settings: PrivacySettings,
    schedule: StepSchedule,
    earlier: tuple[PrivacyHistory, ...],
    ledger: Path,
) -> tuple[float, int]:
    """σ and the allowed number of steps; raises BadInput if they allow no iteration or round."""
    epsilon, delta, kind = settings.dp_epsilon, settings.dp_delta or 0.0, settings.dp_accountant
    whose, rate, noise = schedule.whose, schedule.rate, settings.dp_noise
    planned = schedule.num_units * schedule.unit
    if earlier and kind == "prv":
        raise BadInput(
            key("dp_accountant", "prv"),
            f"{whose} took part in earlier runs (ledger {ledger}), and this accountant cannot add "
            "up several runs",
            f"give {key('dp_accountant', 'rdp')}",
        )
    if epsilon is None:
        return noise or inf, MOST_STEPS
    spent = epsilon_of_histories(earlier, delta)
    asked = flag("dp_epsilon", f"{epsilon:g}")
    if not leaves_something(earlier, settings):
        why = f"{whose} have spent {spent:.3g} before (ledger {ledger})"
        raise BadInput(asked, why, f"give more than {spent:.3g}: it bounds all runs together")
    if noise is None:
        try:
            return noise_for(epsilon, delta, rate, planned, earlier, kind), planned
        except BadInput as error:
            before = f"; before, {whose} have spent {spent:.3g} (ledger {ledger})" if spent else ""
            raise BadInput(error.what, error.why, f"{error.way_out}{before}") from error
    allowed = steps_for(epsilon, delta, rate, noise=noise, earlier=earlier, kind=kind, most=planned)
    if allowed < schedule.unit:
        after = f", after {spent:.3g} (ledger {ledger})" if spent else ""
        asked_noise = flag("dp_noise", f"{noise:g}")
        why = f"too small for one step of {whose} with {asked_noise}{after}"
        raise BadInput(asked, why, "give more of either")
    return noise, allowed
