"""Noise on counts that a worker tells once, before it trains; see `SampleKind.num_counts`.

The counts are the Gaussian mechanism with sampling rate 1: adding or removing a sample changes one
count of each histogram by 1, so in Euclidean norm by the root of their number. They have a plan of
their own in the ledger, before that of training, and the accountant adds the two up. The same
samples get the same noise in a later run, and are not charged again.
"""

import hashlib
import json
from collections.abc import Callable
from math import inf, sqrt
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.privacy.accountant import PrivacyCharge, best_order, noise_for
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import SAMPLE, Ledger, LedgerView, Plan
from mdgan.privacy.noise import with_noise
from mdgan.privacy.planning import StepSchedule, check_alike
from mdgan.privacy.settings import Private

_EACH = 1.0
"""The sampling rate: every sample is counted."""


class CountsNoise(NamedTuple):
    """What hides a worker's samples in its counts: σ, in units of what one sample changes."""

    noise: float
    key: bytes

    def added(self, counts: Tensor, num_histograms: int) -> Tensor:
        """Counts, int64 [n], with noise, rounded: int64 [n], maybe below 0.

        Args:
            num_histograms: in how many counts a single sample is 1.
        """
        most = sqrt(num_histograms)
        return with_noise(counts.double(), most, self.noise, self.key).round().long()


def spend_on_counts(
    rank: int, num_samples: int, settings: Private, folder: Path, contents: Callable[[], Contents]
) -> CountsNoise | None:
    """Charges the samples of a worker for counts, once; None if there is no noise.

    Raises:
        BadInput: the ledger refuses.
    """
    privacy = settings.privacy
    if not privacy.hides_samples or privacy.dp_noise == 0:
        return None
    if privacy.dp_accountant == "prv":
        raise BadInput(
            "--set dp_accountant=prv: cannot add up what counts and training spend; use rdp"
        )
    noise, delta = _noise(settings), privacy.dp_delta or 0.0
    schedule = StepSchedule.of_samples(rank, num_samples, settings)
    steps = schedule.num_units * schedule.unit
    charge = PrivacyCharge(noise, _EACH, 1)

    def make_plan(known: LedgerView) -> Plan:
        check_alike(privacy, schedule, known, folder)
        is_charged = None not in known.rows and all(
            any((c.noise, c.rate) == charge[:2] for c in history.charges)
            for history in known.histories
        )
        if known.last is not None and is_charged and known.histories:
            return known.last.plan
        asked = json.dumps(["counts", noise])
        # The order of Rényi stays with the samples, and must suit training.
        whole = privacy.dp_noise or noise_for(
            privacy.dp_epsilon or inf, delta, schedule.rate, steps, (), "rdp"
        )
        order = best_order(PrivacyCharge(whole, schedule.rate, steps), delta)
        return Plan(asked, SAMPLE, "rdp", noise, _EACH, 1, 1, order)

    held = contents()
    ledger = Ledger(folder, held, make_plan)
    try:
        if ledger.run.plan.asked == json.dumps(["counts", noise]) and not ledger.taken:
            ledger.key("counts")
            ledger.taken += 1
        about = hashlib.sha256(b"".join(held.digests)).hexdigest()
        return CountsNoise(noise, ledger.lasting_key(f"counts of {about} with {noise!r}"))
    finally:
        ledger.close()


def _noise(settings: Private) -> float:
    """σ of the counts: by their share of ε, or that of training."""
    privacy = settings.privacy
    if privacy.dp_noise is not None:
        return privacy.dp_noise
    epsilon = (privacy.dp_epsilon or inf) * privacy.dp_encoding_share
    return noise_for(epsilon, privacy.dp_delta or 0.0, _EACH, 1, (), "rdp")
