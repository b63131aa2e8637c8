"""How much of each kind may come from a peer: a message at a time, and messages a second."""

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

MOST_IN_A_ROW = 600
"""How many messages of a kind that is bound to a rate may come at once.

A host that tells something every second has sent so many while a network stood still, or while this
process did, for ten minutes.
"""


class Most(NamedTuple):
    """The most that may come of one kind of message.

    Attributes:
        body_bytes: of its body.
        head_bytes: of the JSON in its body, which holds its fields and names its tensors. JSON
            takes many times its size as values: `frames.OF_A_HEAD`.
        a_second: messages, on average; what comes beyond `MOST_IN_A_ROW` ends the link.
    """

    body_bytes: int
    head_bytes: int
    a_second: float = inf


class Rates:
    """Counts the messages that come over one link."""

    def __init__(
        self, accepts: Mapping[str, Most], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bound = {kind: most.a_second for kind, most in accepts.items() if most.a_second < inf}
        self._clock = clock
        self._left = dict.fromkeys(self._bound, float(MOST_IN_A_ROW))
        self._counted = dict.fromkeys(self._bound, clock())

    def allows(self, kind: str) -> bool:
        """Counts a message; False if too many have come."""
        if kind not in self._bound:
            return True
        now = self._clock()
        gained = (now - self._counted[kind]) * self._bound[kind]
        self._counted[kind] = now
        self._left[kind] = min(MOST_IN_A_ROW, self._left[kind] + gained) - 1
        return self._left[kind] >= 0
