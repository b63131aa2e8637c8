"""R1: D's slope at real samples shall be small (Mescheder et al. 2018, equation 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdgan.gan.regularizers.contract import REAL, WEIGHT, Penalty
from mdgan.settings.declare import Settings, setting
from mdgan.settings.excludes import table

if TYPE_CHECKING:
    from torch import Tensor


class R1Settings(Settings, group="models"):
    """The setting of γ, the weight of the penalty."""

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

    def of_samples(self, logits: Tensor, slopes: Tensor) -> Tensor:
        of_a_sample = tuple(range(logits.dim(), slopes.dim()))
        return 0.5 * self.weight * slopes.square().sum(of_a_sample).mean(-1)
