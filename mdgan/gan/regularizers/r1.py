"""R1: D's slope at real samples shall be small (Mescheder et al. 2018, equation 9)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from mdgan.gan.regularizers.contract import REAL, Penalty
from mdgan.settings.declare import Settings, number, setting, shortest
from mdgan.settings.excludes import table

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT = number(lambda weight: 0 < weight < inf, "must be above 0; leave it out for no penalty")


class R1Settings(Settings, group="models"):
    """γ."""

    r1: float | None = setting(
        None,
        "Penalty on the discriminator's gradient at real samples: half of GAMMA times the mean of "
        "its squared norm.",
        WEIGHT,
        metavar="GAMMA",
        symbol="γ",
        default_text="none",
        other_names=("--r1-gamma", "--gamma"),
    )


class R1(Penalty):
    """R1 = γ/2 · E‖∇D(x)‖² on real samples."""

    name = "r1"
    place = REAL
    excludes = table(
        """
        r1 | merge_halves |
            {when} needs a pass over real samples alone; leave out one of the two
        """
    )

    def __init__(self, gamma: float) -> None:
        self.flag = f"--r1 {shortest(gamma)}"
        self._gamma = gamma

    @classmethod
    def of(cls, settings: R1Settings) -> R1 | None:
        """See `Regularizer`."""
        return None if settings.r1 is None else cls(settings.r1)

    def of_samples(self, logits: Tensor, slopes: Tensor) -> Tensor:
        """See `Penalty`."""
        del logits
        return 0.5 * self._gamma * slopes.square().sum((-3, -2, -1)).mean(-1)
