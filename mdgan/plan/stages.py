"""From what the server and a worker of each group do to the costs of any hosts."""

from collections.abc import Sequence
from dataclasses import dataclass

from mdgan.plan.phases import MESSAGES, HostStages, Seconds
from mdgan.plan.prediction import Costs

Counts = tuple[int, ...]
"""How many workers of each group a host carries."""


def times(phase: str, hosts: Sequence[Counts], *, by_arrival: bool) -> int:
    """How often the server is in a phase of a step.

    It has messages for each host, and arithmetic once; by arrival all that for each worker.
    """
    if by_arrival:
        return sum(map(sum, hosts))
    return len(hosts) if phase in MESSAGES else 1


@dataclass(frozen=True)
class Stages:
    """Seconds of a step by phase, each time that it comes.

    Attributes:
        server: of the server alone, but for messages.
        server_busy: of all its cores together, while hosts compute.
        workers: of one worker of each group.
        exchange: of a worker in an exchange with other hosts.
        questions: see `Planning`.
        by_arrival: see `Planning`.
    """

    server: Seconds
    server_busy: Seconds
    workers: Sequence[HostStages]
    exchange: float
    questions: int = 1
    by_arrival: bool = False

    def costs(self, hosts: Sequence[Counts]) -> Costs:
        """What hosts take that carry so many workers, and a server that asks them."""
        return Costs(
            tuple(map(self._answers, hosts)),
            tuple(
                sum(n * sum(w.ahead.values()) for n, w in zip(counts, self.workers, strict=True))
                for counts in hosts
            ),
            self.exchange,
            sum(self.of_server(self.server, hosts).values()),
            sum(self.of_server(self.server_busy, hosts).values()),
        )

    def of_server(self, stages: Seconds, hosts: Sequence[Counts]) -> Seconds:
        """By phase, how long the server is in it in a step with these hosts."""
        return {
            phase: seconds * times(phase, hosts, by_arrival=self.by_arrival)
            for phase, seconds in stages.items()
        }

    def _answers(self, counts: Counts) -> float:
        """From a question to the answer, with the messages; by arrival for each worker."""
        asked = [(n, w.asked) for n, w in zip(counts, self.workers, strict=True) if n]
        messages = [sum(stages.get(phase, 0.0) for phase in MESSAGES) for _, stages in asked]
        computed = sum(
            n * (sum(stages.values()) - message)
            for (n, stages), message in zip(asked, messages, strict=True)
        )
        return computed + max(messages) * (sum(counts) if self.by_arrival else self.questions)
