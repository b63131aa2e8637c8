"""Noise that certificates add together, where the server sees only the sum of what hosts tell.

The owner of a certificate knows what its hosts add, so parts are counted by certificate, however
many workers it carries. Without certificates, on one machine of one user, each host counts.

Each of M adds noise of variance σ²/M, all its workers together, rounded to a lattice on which masks
lie, too. Sums of such parts are rounded normal numbers of variance σ², but for a probability below
2⁻¹⁰⁰⁰: what the lattice's own reasoning asks for; see `noise.py`. Where c of M tell the server what
they have added, σ²(M - c)/M is left.
"""

from dataclasses import dataclass

from mdgan.errors import BadInput
from mdgan.settings.declare import Settings, key_setting, whole
from mdgan.spelling import key


class SharedNoiseSettings(Settings, group="privacy"):
    """Of algorithms whose workers' noise may be in their sum alone."""

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
        """Raises BadInput if there are fewer workers than M at the start."""
        if self.noise_sharers is not None and self.noise_sharers > num_workers:
            why = f"there are {num_workers} workers"
            way_out = "give less, or leave it out for all that take part"
            raise BadInput(key("noise_sharers", self.noise_sharers), why, way_out)


@dataclass(frozen=True)
class NoiseSharing:
    """Which sums have enough of the noise."""

    num_workers: int  # at the start; a sum has as many, unless M is given
    given: int | None = None  # M, as the settings say
    least: int = 1  # fewer the user of this machine does not accept, and the server's does not say
    counts_alone: bool = False  # whether answers have all of the noise, and only counts a part

    @property
    def least_hosts(self) -> int:
        """As many hosts a sum has at least: each has one certificate."""
        return 1 if self.counts_alone else max(self.given or 1, self.least)

    def check(self, sharers: int) -> None:
        """Raises BadInput if fewer workers than M have come."""
        if (self.given or 1) > sharers:
            raise BadInput(
                key("noise_sharers", self.given),
                f"all workers have {sharers} certificate(s) together (without certificates hosts "
                "count)",
                "give less, or issue a certificate for each host (mdgan credentials issue)",
            )

    def among(self, sharers: int) -> int:
        """M, where so many take part in a sum."""
        return self.given or max(1, sharers)

    def lacking(self, workers: int, sharers: int, num_asked: int = 0) -> str:
        """What a sum lacks of its noise, in words; empty if nothing.

        Args:
            workers: in the sum, each counted once.
            sharers: in the sum.
            num_asked: sharers that were asked, and have added their parts accordingly.
        """
        if self.given is None and workers < self.num_workers:
            return f"all but {workers} of the {self.num_workers} workers that share the noise"
        needed = max(self.among(num_asked), self.least)
        if sharers >= needed:
            return ""
        return f"all but {sharers} of the {needed} certificates (or hosts) that share the noise"


def variance_of_part(noise: float, least: float, sharers: int) -> float:
    """Of what one of M adds: the sum then has σ² or more, as each of the others adds least²/M.

    Args:
        noise: σ, the most that one of its workers' accounts takes after earlier runs.
        least: the least that the accounts of any other host in the sum take.
    """
    return noise**2 - least**2 * (sharers - 1) / sharers
