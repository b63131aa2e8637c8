"""Noise that all workers add together, where the server sees only the sum of what they tell.

Each of M workers adds noise of variance σ²/M, rounded to a lattice on which masks lie, too. Sums of
such parts are rounded normal numbers of variance σ², but for a probability below 2⁻¹⁰⁰⁰: what the
lattice's own reasoning asks for; see `noise.py`.
"""

from mdgan.errors import BadInput
from mdgan.settings.declare import Settings, setting, whole


class SharedNoiseSettings(Settings, group="privacy"):
    """Of algorithms whose workers' noise may be in their sum alone."""

    noise_sharers: int | None = setting(
        None,
        "With --secure-aggregation and differential privacy, how many workers' noise a sum must "
        "have: each adds its part of the noise, and helps with no sum that has fewer.",
        whole(1),
        metavar="M",
        default_text="all workers",
        has_flag=False,
    )

    def among(self, num_workers: int) -> int:
        """M, of so many workers at the start.

        Raises:
            BadInput: there are fewer.
        """
        if self.noise_sharers is not None and self.noise_sharers > num_workers:
            raise BadInput(
                f"--set noise_sharers={self.noise_sharers}: there are {num_workers} workers; give "
                "less, or leave it out for all of them"
            )
        return self.noise_sharers or num_workers


def lacking(workers: int, sharers: int) -> str:
    """What a sum of so many workers' answers lacks of the noise that M share; empty if nothing."""
    if workers >= sharers:
        return ""
    return f"all but {workers} of the {sharers} workers that share the noise"
