"""Noise on counts that a worker makes once, before it trains: of a table, or of its classes.

The counts are the Gaussian mechanism with sampling rate 1: a unit counts by its first sample, so
adding or removing it changes one count of each histogram by 1, and all by the root of their number.
They have a plan of their own in the ledger, before that of training, and the accountant adds the
two up. See `Releases` for what happens when counts are asked for again.
"""

import json
from contextlib import closing
from math import inf, sqrt
from typing import NamedTuple

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.privacy import accountant
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Ledger, Releases
from mdgan.privacy.ledger_view import SAMPLE, LedgerView, Plan
from mdgan.privacy.noise import with_noise
from mdgan.privacy.planning import StepSchedule, check_alike, ledger_folder, plan_of
from mdgan.privacy.settings import Private

_EACH = 1.0  # the sampling rate: every unit is counted


class SampleCounts(NamedTuple):
    """What was counted of some samples."""

    counts: Tensor  # int64 [n], in which each unit counts once a histogram
    num_histograms: int  # in how many counts a single unit is 1
    meaning: str  # it differs wherever the counts of the same samples would


def are_told(settings: Private, releases: Releases, meaning: str) -> bool:
    """Whether the same counts, of the same meaning, were told before, and are free."""
    return releases.told(_question(settings, releases, meaning)) is not None


def _question(settings: Private, releases: Releases, meaning: str) -> bytes:
    return releases.question("counts", meaning=meaning, noise=noise_of(settings))


def noisy_counts(
    counted: SampleCounts, *, schedule: StepSchedule, settings: Private, held: Contents
) -> Tensor:
    """The counts of a worker with noise, rounded: int64 [n], maybe below 0.

    Args:
        schedule: of the training that follows.
        held: the samples that are counted.

    Raises:
        BadInput: the ledger refuses.
    """
    folder = ledger_folder(settings.privacy)
    releases = Releases(folder, held)
    question = _question(settings, releases, counted.meaning)
    if (again := releases.told(question)) is not None:
        return again

    def make_plan(known: LedgerView) -> Plan:
        after_counts(known, schedule, settings)
        order = _order(schedule, settings)
        asked = json.dumps(["counts", question.hex()])
        return Plan(asked, SAMPLE, "rdp", noise_of(settings), _EACH, 1, 1, order)

    with closing(Ledger(folder, held, make_plan)) as ledger:
        key, most = ledger.key("counts"), sqrt(counted.num_histograms)
        noise = ledger.run.plan.noise
        answer = with_noise(counted.counts.double(), most, noise, key).round().long()
        ledger.taken += 1
        releases.keep(ledger, question, answer)
    return answer


def after_counts(known: LedgerView, schedule: StepSchedule, settings: Private) -> LedgerView:
    """What a ledger knows once the samples are counted by one more question; spends nothing.

    Raises:
        BadInput: then nothing would be left for training.
    """
    privacy, folder = settings.privacy, ledger_folder(settings.privacy)
    check_alike(privacy, schedule, known, folder)
    charge = accountant.PrivacyCharge(noise_of(settings), _EACH, 1)
    histories = {
        accountant.PrivacyHistory(each.order, accountant.joined((*each.charges, charge)))
        for each in known.histories
    }
    if not histories or None in known.rows:
        histories.add(accountant.PrivacyHistory(_order(schedule, settings), (charge,)))
    after = LedgerView(histories=tuple(sorted(histories)))
    try:
        plan_of(privacy, schedule, after, folder)
    except BadInput as error:
        if not known.histories:
            raise BadInput(
                f"{privacy.dp_flag}: too small for counts with so little noise and training after "
                "them; give more, or more --dp-noise, or less --set dp_encoding_share"
            ) from error
        spent = accountant.epsilon_of_histories(known.histories, privacy.dp_delta or 0.0)
        raise BadInput(
            f"{privacy.dp_flag}: {schedule.whose} have spent {spent:.3g} before (ledger {folder}), "
            "and counts by a schema, a target or classes that they were not counted by yet would "
            "spend the rest; give more, or those of before"
        ) from error
    return after


def _order(schedule: StepSchedule, settings: Private) -> float:
    """The order of Rényi of new samples: it stays with them, and must suit training."""
    privacy, steps = settings.privacy, schedule.num_units * schedule.unit
    delta = privacy.dp_delta or 0.0
    noise = privacy.dp_noise or accountant.noise_for(
        privacy.dp_epsilon or inf, delta, schedule.rate, steps, (), "rdp"
    )
    return accountant.best_order(accountant.PrivacyCharge(noise, schedule.rate, steps), delta)


def noise_of(settings: Private) -> float:
    """σ of the counts, in units of what one unit changes: by their share of ε, or of training."""
    privacy = settings.privacy
    if privacy.dp_noise is not None:
        return privacy.dp_noise
    epsilon = (privacy.dp_epsilon or inf) * privacy.dp_encoding_share
    return accountant.noise_for(epsilon, privacy.dp_delta or 0.0, _EACH, 1, (), "rdp")
