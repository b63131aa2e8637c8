"""Learning rates as pure functions of the iteration: nothing of a schedule travels or is saved."""

from dataclasses import dataclass
from math import cos, pi

SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class RateSchedule:
    """What part of a learning rate an iteration has."""

    shape: str = "constant"
    """How the rate falls after the warmup; one of `SCHEDULES`."""
    warmup: int = 0
    """W, the first iterations, in which the rate rises from 1/W of itself to all of it."""
    num_iterations: int = 1
    """I; after it a rate that falls would be 0."""

    def factor(self, iteration: int) -> float:
        """The part of the learning rate, in [0, 1]; the first iteration is 1.

        With t = (i − W − 1) / (I − W), the part of the iterations after the warmup that are done
        before iteration i, it is 1 − t (linear) or (1 + cos πt) / 2 (cosine, without restarts:
        Loshchilov and Hutter 2017, equation 5).
        """
        i = max(iteration, 1)
        if i <= self.warmup:
            return i / self.warmup
        if self.shape == "constant":
            return 1.0
        t = min((i - self.warmup - 1) / max(self.num_iterations - self.warmup, 1), 1.0)
        return 1 - t if self.shape == "linear" else (1 + cos(pi * t)) / 2
