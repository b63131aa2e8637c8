"""Noise on counts that a worker makes once before it trains: counts of a table, or of classes.

They are a Gaussian mechanism with sampling rate 1. A unit counts by its first sample, so adding or
removing a unit changes one count of each histogram by 1, and the norm of all counts by the root of
the number of histograms. Noise and counts lie on a lattice (`noise.py`) until all sites are summed.

If training follows, the counts have their own plan in the ledger, and the accountant adds both up.
If the worker then answers once, counts and answer are steps of one plan (`StepSchedule.noises`).
A worker may repeat counts that it has told for free, unless certificates share their noise: sums
with other workers would reveal the part of this worker. Shared counts are charged again once told.
"""

import json
from contextlib import closing
from math import inf, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.privacy import accountant
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Ledger, Releases, look_up
from mdgan.privacy.ledger_view import SAMPLE, LedgerView, Plan
from mdgan.privacy.noise import with_noise
from mdgan.privacy.planning import StepSchedule, check_alike, ledger_folder, plan_of
from mdgan.privacy.settings import Private
from mdgan.spelling import flag, key

_EACH = 1.0  # the sampling rate: every unit is counted


class SampleCounts(NamedTuple):
    """Exact counts of some samples."""

    counts: Tensor  # int64 [n]; each unit counts once in each histogram
    num_histograms: int
    meaning: str  # identifies what was counted: equal meanings have equal counts of equal samples
    is_shared: bool = False  # whether certificates share the noise


class PaidCounts(NamedTuple):
    """A worker's counts, and what its account pays for them."""

    counted: SampleCounts
    noise: float  # σ by the account
    releases: Releases

    @property
    def question(self) -> bytes:
        """The digest of the question that these counts answer; see `Releases`."""
        return self.releases.question("counts", meaning=self.counted.meaning, noise=self.noise)

    def kept(self) -> Tensor | None:
        """The noisy counts, or the key of shared noise; None if unpaid, or told and shared."""
        kept = self.releases.told(self.question)
        return kept if kept is not None and kept.numel() else None

    def tell(self, part: float = 1.0) -> Tensor:
        """The noisy counts to send, float64 [n] on the lattice; shared noise is scaled by `part`.

        Raises BadInput for shared counts that were told before.
        """
        if (kept := self.kept()) is None:
            why = "were told with a part of shared noise, which is never told again"
            raise BadInput("counts of the samples here", why, "start this host anew")
        if not self.counted.is_shared:
            return kept.double()
        self.releases.remember({self.question: torch.empty(0)})  # before the counts leave
        return self.with_noise(bytes(kept.tolist()), part)

    def with_noise(self, key: bytes, part: float = 1.0) -> Tensor:
        """The counts with the noise that a key determines, float64 [n]."""
        counts, number, _, _ = self.counted
        return with_noise(counts.double(), sqrt(number), self.noise * part, key)


def planned_counts(
    counted: SampleCounts, *, schedule: StepSchedule, settings: Private, held: Contents
) -> PaidCounts:
    """Counts by the present or next plan of the ledger; spends nothing; raises as `plan_of`."""
    folder, share = ledger_folder(settings.privacy), schedule.counts_share
    plan = share and plan_of(settings.privacy, schedule, look_up(folder, held), folder)
    noise = schedule.noises(plan.noise)[0] if plan else noise_of(settings)
    return PaidCounts(counted, noise, Releases(folder, held))


def paid_counts(
    counted: SampleCounts, *, schedule: StepSchedule, settings: Private, held: Contents
) -> PaidCounts:
    """Charges a worker's account for its counts, unless they are already paid for.

    Args:
        schedule: of the training that follows.
        held: the counted samples.

    Raises:
        BadInput: the ledger refuses.
    """
    paid = planned_counts(counted, schedule=schedule, settings=settings, held=held)
    if paid.kept() is not None:
        return paid
    folder = ledger_folder(settings.privacy)

    def make_plan(known: LedgerView) -> Plan:
        if schedule.counts_share:  # counts are always the first step of their plan
            return plan_of(settings.privacy, schedule._replace(rest=None), known, folder)
        after_counts(known, schedule, settings)
        order, asked = _order(schedule, settings), json.dumps(["counts", paid.question.hex()])
        return Plan(asked, SAMPLE, "rdp", paid.noise, _EACH, 1, 1, order)

    with closing(Ledger(folder, held, make_plan, block=1)) as ledger:
        ledger.taken += ledger.taken % schedule.unit if schedule.counts_share else 0  # no sums came
        if schedule.counts_share and ledger.taken >= ledger.run.plan.until:
            why = f"{schedule.whose} have taken all steps with this noise (ledger {folder})"
            raise BadInput(settings.privacy.dp_flag, why, f"give other {flag('dp_noise')}")
        paid = paid._replace(noise=schedule.noises(ledger.run.plan.noise)[0])
        key = ledger.key("counts")
        ledger.taken += 1
        shared = torch.frombuffer(bytearray(key), dtype=torch.uint8)
        answer = shared if counted.is_shared else paid.with_noise(key)
        paid.releases.remember({paid.question: answer})
    return paid


def after_counts(known: LedgerView, schedule: StepSchedule, settings: Private) -> LedgerView:
    """The ledger's view after one more question for counts; spends nothing.

    Raises:
        BadInput: the question would leave nothing for training.
    """
    privacy, folder = settings.privacy, ledger_folder(settings.privacy)
    check_alike(privacy, schedule, known, ledger=folder)
    charge = accountant.PrivacyCharge(noise_of(settings), _EACH, 1)
    histories = {
        accountant.PrivacyHistory(each.order, accountant.joined((*each.charges, charge)))
        for each in known.histories
    }
    if not histories or None in known.rows:
        histories.add(accountant.PrivacyHistory(_order(schedule, settings), (charge,)))
    after = LedgerView(histories=tuple(sorted(histories)))
    try:
        plan_of(privacy, schedule, after, ledger=folder)
    except BadInput as error:
        if not known.histories:
            why = "too small for counts with so little noise and training after them"
            way_out = f"give more, or more {flag('dp_noise')}, or less {key('dp_encoding_share')}"
            raise BadInput(privacy.dp_flag, why, way_out) from error
        spent = accountant.epsilon_of_histories(known.histories, privacy.dp_delta or 0.0)
        raise BadInput(
            privacy.dp_flag,
            f"{schedule.whose} have spent {spent:.3g} before (ledger {folder}), and counts by a "
            "schema, a target or classes that they were not counted by yet would spend the rest",
            "give more, or those of before",
        ) from error
    return after


def _order(schedule: StepSchedule, settings: Private) -> float:
    """The Rényi order of new samples. It is fixed from then on, so it is chosen for training."""
    privacy, steps = settings.privacy, schedule.num_units * schedule.unit
    delta = privacy.dp_delta or 0.0
    noise = privacy.dp_noise or accountant.noise_for(
        privacy.dp_epsilon or inf, delta, schedule.rate, steps=steps, earlier=(), kind="rdp"
    )
    return accountant.best_order(accountant.PrivacyCharge(noise, schedule.rate, steps), delta)


def noise_of(settings: Private) -> float:
    """σ of the counts relative to what one unit changes: `dp_noise`, or by their share of ε."""
    privacy = settings.privacy
    if privacy.dp_noise is not None:
        return privacy.dp_noise
    epsilon = (privacy.dp_epsilon or inf) * privacy.dp_encoding_share
    return accountant.noise_for(epsilon, privacy.dp_delta or 0.0, _EACH, 1, (), "rdp")
