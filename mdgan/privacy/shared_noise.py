"""Noise of which each certificate adds a part, when the server sees only the sum of all answers.

The owner of a certificate knows what all its hosts add. So parts are counted by certificate,
however many workers it carries. Without certificates (one machine, one user) each host counts.

Each of M sharers adds noise of variance σ²/M, over all its workers, rounded to the lattice of the
masks. The sum of M parts is a rounded normal number of variance σ², but for a probability below
2⁻¹⁰⁰⁰, which is what `noise.py` needs. If c of the M sharers tell the server their parts, noise of
variance σ²(M - c)/M remains.
"""

from dataclasses import dataclass

from mdgan.errors import BadInput
from mdgan.settings.declare import Settings, key_setting, whole
from mdgan.spelling import key


class SharedNoiseSettings(Settings, group="privacy"):
    """Settings of algorithms whose workers may share the noise of a sum."""

    noise_sharers: int | None = key_setting(
        None,
        "With --secure-aggregation and differential privacy, how many certificates' noise a sum "
        "must have (without certificates: how many hosts'). Each adds its part of the noise, "
        "whatever number of workers it carries, and helps with no sum that has fewer.",
        whole(1),
        metavar="M",
        default_text="all in a sum, which then must have all workers",
    )

    def check_enough(self, num_workers: int) -> None:
        """Raises BadInput if a run starts with fewer workers than M."""
        if self.noise_sharers is not None and self.noise_sharers > num_workers:
            why = f"there are {num_workers} workers"
            way_out = "give less, or leave it out for all that take part"
            raise BadInput(key("noise_sharers", self.noise_sharers), why, way_out)


@dataclass(frozen=True)
class NoiseSharing:
    """Decides which sums have enough noise."""

    num_workers: int  # at the start of the run; without M, a sum must have all of them
    given: int | None = None  # M of the settings
    least: int = 1  # the least M that the user of this machine accepts
    counts_alone: bool = False  # whether only counts share noise, and each answer has all of it

    @property
    def least_hosts(self) -> int:
        """The least number of hosts in a sum, since a host has one certificate."""
        return 1 if self.counts_alone else max(self.given or 1, self.least)

    def check(self, sharers: int) -> None:
        """Raises BadInput if all workers of the run have fewer certificates than M."""
        if (self.given or 1) > sharers:
            raise BadInput(
                key("noise_sharers", self.given),
                f"all workers have {sharers} certificate(s) together (without certificates hosts "
                "count)",
                "give less, or issue a certificate for each host (mdgan credentials issue)",
            )

    def among(self, sharers: int) -> int:
        """M of a sum in which this many sharers take part."""
        return self.given or max(1, sharers)

    def lacking(self, workers: int, sharers: int, num_asked: int = 0) -> str:
        """Says in words which sharers a sum lacks; empty if it has enough noise.

        Args:
            workers: number of workers in the sum.
            sharers: number of sharers in the sum.
            num_asked: sharers that were asked; each has added noise of variance σ² / num_asked.
        """
        if self.given is None and workers < self.num_workers:
            return f"all but {workers} of the {self.num_workers} workers that share the noise"
        needed = max(self.among(num_asked), self.least)
        if sharers >= needed:
            return ""
        return f"all but {sharers} of the {needed} certificates (or hosts) that share the noise"


def variance_of_part(noise: float, least: float, sharers: int) -> float:
    """Variance of one sharer's part: with least²/M from each other sharer, the sum has σ² or more.

    Args:
        noise: σ, the largest that an account of this sharer's workers needs after earlier runs.
        least: the smallest σ that an account of another host in the sum needs.
    """
    return noise**2 - least**2 * (sharers - 1) / sharers
