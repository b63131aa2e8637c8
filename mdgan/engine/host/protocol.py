"""Which messages a server may send to a host, when and how often: a table, and its check.

If hosts did whatever a server asks, a lying server could have one batch of real samples judged by
many discriminators. So a message that no honest server would send now ends the link. A host never
goes back: once it has trained, it takes no state, whatever the server says of iterations.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any

from mdgan.errors import BadInput, cause_of, one_line
from mdgan.messages import Kind, Message


class OutOfTurn(RuntimeError):
    """The server has sent a message that no honest server would send now."""


class State(Enum):
    """The states of a host in order, in words for its user."""

    LACKS = "a worker here lacks a state"
    WAITS = "it has not told what all sites have counted"
    TRAINS = "every worker here has what it needs"


_MOST_ITERATIONS = 1 << 62
ALWAYS, ARRIVED = frozenset(State), frozenset({State.WAITS, State.TRAINS})
LACKS, TRAINS = frozenset({State.LACKS}), frozenset({State.TRAINS})


class Per(Enum):
    """Over what period messages of one kind are counted."""

    ITERATION = "of that iteration"
    LINK = "on this link"
    TEN_MINUTES = "within ten minutes"
    PROCESS = "since this host was started"


@dataclass(frozen=True)
class Turn:
    """When messages of one kind may come.

    Attributes:
        states: the states in which a host accepts them.
        most, per: how many messages, and over what period.
        above: by kind, how much higher the iteration must be than that of the last message of that
            kind on this link: 1 means later, 0 not earlier.
        otherwise: why a host in another state refuses, in words for its user.
    """

    states: frozenset[State] = TRAINS
    most: float = inf
    per: Per = Per.ITERATION
    above: Mapping[str, int] = field(default_factory=dict)
    otherwise: str = ""


NONE_LACKS = "it gives states to workers that lack none"
ENGINE: Mapping[str, Turn] = {
    Kind.ADOPT: Turn(LACKS, 5, Per.TEN_MINUTES, otherwise=NONE_LACKS),  # see `Newcomers`
    Kind.ASKCOUNTS: Turn(ARRIVED, 1, Per.LINK),
    Kind.LEARNT: Turn(ALWAYS, 1, Per.LINK),
    Kind.EXTRACTOR: Turn(TRAINS, 1, Per.LINK),
    Kind.CHECKPOINT: Turn(TRAINS, 2, Per.ITERATION, above={Kind.CHECKPOINT: 0}),
    Kind.STOP: Turn(ALWAYS),
}
"""The rules for messages of every server. `rules` of families and paths override them. A family's
kind without a rule may come while the host trains, and not for earlier iterations."""


@contextmanager
def sensible(what: str) -> Iterator[None]:
    """Turns errors of the block, which reads the server's message `what`, into `OutOfTurn`."""
    try:
        yield
    except BadInput:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = one_line(cause_of(error))
        raise OutOfTurn(f"its {what} message makes no sense ({why:.150})") from error


class Protocol:
    """Checks the messages of each server that a host is linked with, one after the other.

    Args:
        question: the kind of message that an iteration begins with.
        iterations: of the run. A server that takes over repeats those since its last checkpoint,
            but it has no reason for over five times as many questions and a hundred more.
    """

    def __init__(self, rules: Mapping[str, Turn], question: str, iterations: float = inf) -> None:
        self._rules, self._question = rules, question
        self._left = 5 * iterations * rules[question].most + 100
        self._run: str | None = None
        self._generation = self._floor = self._asked = 0
        self._newest: dict[str, int] = {}  # by kind, the highest iteration on this link
        self._counts: dict[str, dict[int, int]] = {}  # kind → period → number of messages

    def attend(self, welcome: Mapping[str, Any]) -> None:
        """Checks that a server that let this host in is of the same run, and not further back.

        A server of a higher generation may begin at an earlier iteration; workers stay as they are.

        Raises:
            OutOfTurn: it is of another run, or goes back.
        """
        with sensible(Kind.WELCOME):
            run, generation = str(welcome.get("run_id", "")), int(welcome["generation"])
            if not 0 <= (iteration := int(welcome["iteration"])) < _MOST_ITERATIONS:
                raise ValueError(f"iteration {iteration:.3g}")
        if self._run not in (None, run):
            raise OutOfTurn("it has another run than the one that this host takes part in")
        self._asked = self._asked if generation <= self._generation else 0
        # The next question may already be out while the server works on this iteration.
        if generation < self._generation or iteration < self._asked - 1:
            raise OutOfTurn(f"it goes back to iteration {iteration} of generation {generation}")
        self._run, self._generation, self._floor = run, generation, iteration - 1
        self._newest.clear()
        for kind, rule in self._rules.items():
            if rule.per in (Per.LINK, Per.ITERATION):
                self._counts.pop(kind, None)

    def check(self, message: Message, state: State) -> None:
        """Checks and counts one message; `OutOfTurn` if no honest server would send it now."""
        kind, iteration, newest = message.kind, message.iteration, self._newest
        said = f"it sends {one_line(kind)} of iteration {iteration}"
        rule = self._rules.get(kind)
        if rule is None or iteration < 0:
            raise OutOfTurn(f"{said}, which no server of such a run sends")
        if state not in rule.states:
            raise OutOfTurn(rule.otherwise or f"{said} while {state.value}")
        for other, by in rule.above.items():
            if iteration < newest.get(other, -1) + by:
                raise OutOfTurn(f"{said} after {other} of iteration {newest[other]}")
        newest[kind] = max(iteration, newest.get(kind, -1))
        keys = {Per.ITERATION: iteration, Per.TEN_MINUTES: int(time.monotonic() // 600)}
        key, counts = keys.get(rule.per, 0), self._counts.get(kind, {})
        self._counts[kind] = counts = {k: n for k, n in counts.items() if k >= key - 1}
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > rule.most:
            raise OutOfTurn(f"{said}: more than {rule.most} {rule.per.value}")
        if kind == self._question:
            self._left, self._asked = self._left - 1, max(self._asked, iteration)
            if iteration < self._floor or self._left < 0:
                raise OutOfTurn(f"{said}, more often or earlier than a run of such a length does")
