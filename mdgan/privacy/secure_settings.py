"""Settings of masked sums: the server learns a sum, but none of its addends."""

from mdgan.settings.declare import Settings, setting, switch
from mdgan.settings.excludes import Condition, Excludes

LEAST_PARTIES = 3  # one of two hosts could subtract its own part and get the other's


def summed(what: str | Condition) -> Excludes:
    """A row for a setting that needs single answers, so that it excludes masked sums."""
    return Excludes(
        "secure_aggregation",
        what,
        "with {when} the server sees sums alone, of all workers that were asked; leave out one of "
        "the two",
    )


class SecureSumSettings(Settings, group="privacy"):
    """Settings of algorithms for which sums of answers are enough."""

    secure_aggregation: bool = setting(
        False,
        "The server learns only sums of what three hosts or more answer: hosts mask their "
        "answers, and two thirds of them take the masks off the sum. Nor can it refuse what a "
        "single worker answers.",
        switch(),
        is_usual=True,
    )
