"""The settings of sums of which the server learns no part."""

from mdgan.settings.declare import Settings, setting, switch
from mdgan.settings.excludes import Condition, Excludes

LEAST_PARTIES = 3  # of two hosts, each could take its own part off the sum and have the other's


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
