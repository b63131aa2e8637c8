"""`--secure-aggregation`, for algorithms in which sums of answers are enough."""

from collections.abc import Mapping
from dataclasses import dataclass

from mdgan.engine.settings import RunSettings, num_participants
from mdgan.errors import BadInput
from mdgan.settings.declare import setting, switch

LEAST_PARTIES = 3
"""Of two hosts, each could take its own part off the sum and have the other's."""


def threshold(num_hosts: int) -> int:
    """t: so many of a sum's hosts are needed to take its masks off.

    ⌊2n/3⌋ + 1 (Bonawitz et al. 2017, section 6.2): against a server that lies, and fewer than a
    third of the hosts that work together with it.
    """
    return 2 * num_hosts // 3 + 1


@dataclass(frozen=True)
class SecureSumSettings(RunSettings):
    """The settings of algorithms that can do with sums of answers."""

    secure_aggregation: bool = setting(
        False,
        "The server learns only sums of what three hosts or more answer: hosts mask their "
        "answers, and two thirds of them take the masks off the sum. Nor can it refuse what a "
        "single worker answers.",
        switch(),
        group="privacy",
    )

    def check(self) -> None:
        """Checks that no other setting needs single answers, and that sums have enough of them."""
        super().check()
        if not self.secure_aggregation:
            return
        for given in (flag for flag, is_given in self.needs_single_answers().items() if is_given):
            raise BadInput(
                f"{given}: with --secure-aggregation the server sees sums alone, of all workers "
                "that were asked; leave out one of the two"
            )
        at_a_time = num_participants(self.participation, self.num_workers)
        if at_a_time < LEAST_PARTIES:
            raise BadInput(
                f"--secure-aggregation: a sum of {at_a_time} worker(s) at a time would tell "
                f"what each has answered; use at least {LEAST_PARTIES} (--world-size, "
                "--participation)"
            )

    def needs_single_answers(self) -> Mapping[str, bool]:
        """By flag with its value, whether it was given although it needs single answers."""
        return {
            f"--deadline {self.deadline}": self.deadline is not None,
            "--checkpoint-to-server": self.checkpoint_to_server,
        }
