"""`--secure-aggregation`, for algorithms in which sums of answers are enough."""

from mdgan.settings.declare import Settings, setting, switch
from mdgan.settings.excludes import Condition, Excludes

LEAST_PARTIES = 3
"""Of two hosts, each could take its own part off the sum and have the other's."""


def threshold(num_hosts: int) -> int:
    """t: so many of a sum's hosts are needed to take its masks off.

    ⌊2n/3⌋ + 1 (Bonawitz et al. 2017, section 6.2): against a server that lies, and fewer than a
    third of the hosts that work together with it.
    """
    return 2 * num_hosts // 3 + 1


def summed(what: str | Condition) -> Excludes:
    """The row of settings that need single answers."""
    return Excludes(
        "secure_aggregation",
        what,
        "with {when} the server sees sums alone, of all workers that were asked; leave out one of "
        "the two",
    )


class SecureSumSettings(Settings, group="privacy"):
    """The settings of algorithms that can do with sums of answers."""

    secure_aggregation: bool = setting(
        False,
        "The server learns only sums of what three hosts or more answer: hosts mask their "
        "answers, and two thirds of them take the masks off the sum. Nor can it refuse what a "
        "single worker answers.",
        switch(),
        is_usual=True,
    )
