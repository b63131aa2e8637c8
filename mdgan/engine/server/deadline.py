"""When the server goes on without the answers that are missing."""

from collections import deque
from collections.abc import Iterable
from math import ceil, inf
from statistics import median

from mdgan.engine.settings import DeadlineRule

_REMEMBERED = 200


class Deadline:
    """How long the server waits for answers, and for how many of them.

    Args:
        rule: when to go on; None to wait for every worker that lives.
        quorum: the least fraction of the live workers that must have answered, in ]0, 1].
    """

    def __init__(self, rule: DeadlineRule | None, quorum: float) -> None:
        self._seconds, self._factor = rule or (0.0, 0.0)
        self._quorum = quorum
        self._times: deque[float] = deque(maxlen=_REMEMBERED)

    def limit_seconds(self) -> float:
        """How long after asking the server goes on; infinite if no worker is left behind."""
        if self._seconds:
            return self._seconds
        if self._factor and self._times:
            return self._factor * median(self._times)
        return inf

    def least(self, num_live: int) -> int:
        """How many workers at least must take part in an iteration.

        Args:
            num_live: the workers that live, busy or not.
        """
        if not self._seconds and not self._factor:
            return num_live
        return min(num_live, max(1, ceil(self._quorum * num_live)))

    def learn(self, answer_seconds: Iterable[float]) -> None:
        """Takes in how long answers took."""
        self._times.extend(answer_seconds)
