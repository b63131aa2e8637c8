"""What the server may send to a host, when and how often: a table, and the check against it.

A server that lies could have one batch of real samples answered for many discriminators, if hosts
did whatever it asks. So a host does only what an honest server would ask for now. What does not fit
ends the link, in one line that names the server. A host never goes back: once it has trained, it
takes no state, so each batch is answered once, whatever a server says of iterations.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from math import inf
from typing import Any

from mdgan.errors import BadInput, one_line
from mdgan.messages import Kind, Message

_TEN_MINUTES = 600.0


class OutOfTurn(RuntimeError):
    """The server sends what no honest server would send now."""


class State(Enum):
    """What a host needs before it can train, in words for its user."""

    LACKS = "a worker here lacks a state"
    WAITS = "it has not told what all sites have counted"
    TRAINS = "every worker here has what it needs"


class Per(Enum):
    """For what a number of messages is counted."""

    LINK = "on one link"
    ITERATION = "of one iteration"
    TEN_MINUTES = "within ten minutes"
    PROCESS = "to one process"


ALWAYS = frozenset(State)
ARRIVED = frozenset({State.WAITS, State.TRAINS})
TRAINS = frozenset({State.TRAINS})
LACKS = frozenset({State.LACKS})


@dataclass(frozen=True)
class Rule:
    """When messages of one kind may come.

    Attributes:
        states: in which the host may be.
        most, per: how many may come.
        above: by kind, how far the iteration must be above that of the last message of that kind on
            this link: 1 is later, 0 not earlier.
        alike: whether a second one of an iteration must have the tensors of the first.
        otherwise: what the server does in another state, in words for the host's user.
    """

    states: frozenset[State] = TRAINS
    most: float = inf
    per: Per = Per.ITERATION
    above: Mapping[str, int] = field(default_factory=dict)
    alike: bool = False
    otherwise: str = ""


NONE_LACKS = "it gives states to workers that lack none"
ENGINE: Mapping[str, Rule] = {
    #                     in which state, at most, …              and not before
    Kind.ADOPT: Rule(LACKS, 5, Per.TEN_MINUTES, otherwise=NONE_LACKS),  # as `Newcomers` gives
    Kind.LEARNT: Rule(ALWAYS, 1, Per.LINK),
    Kind.EXTRACTOR: Rule(TRAINS, 1, Per.LINK),
    Kind.CHECKPOINT: Rule(TRAINS, 2, Per.ITERATION, {Kind.CHECKPOINT: 0}),
    Kind.STOP: Rule(ALWAYS, 1, Per.LINK),
}
"""What every server sends; families (`HostPart.rules`) and paths (`HostPath.rules`) add their own.
A host that is asked for counts has one row more, see `counts_rule`."""


def counts_rule(*, hides_answers: bool) -> Rule:
    """When a host may be asked for its counts: of two sums the difference would be its own."""
    return Rule(ARRIVED, 1, Per.PROCESS if hides_answers else Per.LINK)


@contextmanager
def sensible(what: str) -> Iterator[None]:
    """Reads what the server has sent; that it is malformed ends the link like anything else.

    Raises:
        OutOfTurn: what is read in the block makes no sense.
    """
    try:
        yield
    except BadInput:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise OutOfTurn(f"its {what} message makes no sense ({one_line(error)!r:.99})") from error


class Protocol:
    """Holds one server after the other to the rules.

    Args:
        question: the kind of message that an iteration begins with.
        iterations: of the run. A server that has taken over begins again after its last checkpoint,
            so that there may be more questions, but not five times as many and a hundred more.
    """

    def __init__(self, rules: Mapping[str, Rule], question: str, iterations: float = inf) -> None:
        self._rules, self._question = rules, question
        self._left = 5 * iterations * rules[question].most + 100
        self._run: str | None = None
        self._generation = self._floor = self._asked = 0
        self._newest: dict[str, int] = {}  # by kind, the highest iteration on this link
        self._marks: dict[str, list[float]] = {}  # by kind, one for each message that counts
        self._tensors: dict[str, tuple[int, bytes]] = {}

    def attend(self, welcome: Mapping[str, Any]) -> None:
        """A server has let this host in: it must be one of the same run, and no further back.

        One of a higher generation has taken over. It may begin at an earlier iteration, but the
        workers here stay as they are.

        Raises:
            OutOfTurn: it is not.
        """
        with sensible(Kind.WELCOME):
            run, generation = str(welcome.get("run_id", "")), int(welcome["generation"])
            iteration = int(welcome["iteration"])
        if self._run not in (None, run):
            raise OutOfTurn("it has another run than the one that this host takes part in")
        if generation < self._generation:
            raise OutOfTurn(f"it is of generation {generation}, after one of {self._generation}")
        # The next question may already be out while the server works on this iteration.
        if generation == self._generation and iteration < self._asked - 1:
            raise OutOfTurn(f"it goes back from iteration {self._asked} to {iteration}")
        if generation > self._generation:
            self._asked = 0
        self._run, self._generation, self._floor = run, generation, iteration - 1
        self._newest.clear()
        for kind, rule in self._rules.items():
            if rule.per in (Per.LINK, Per.ITERATION):
                self._marks.pop(kind, None)

    def check(self, message: Message, state: State) -> None:
        """Checks one message, and remembers it.

        Raises:
            OutOfTurn: no honest server would send it now.
        """
        kind, iteration = message.kind, message.iteration
        said = f"it sends {one_line(kind)} of iteration {iteration}"
        rule = self._rules.get(kind)
        if rule is None or iteration < 0:
            raise OutOfTurn(f"{said}, which no server of such a run sends")
        if state not in rule.states:
            raise OutOfTurn(rule.otherwise or f"{said} while {state.value}")
        if kind == self._question:
            self._left -= 1
            if iteration < self._floor:
                raise OutOfTurn(f"{said}, and is further itself")
            if self._left < 0:
                raise OutOfTurn(f"{said}, and no run has as many questions as it has asked")
        for other, by in rule.above.items():
            if iteration < self._newest.get(other, -1) + by:
                raise OutOfTurn(f"{said} after {other} of iteration {self._newest[other]}")
        self._check_number(kind, rule, iteration, said)
        self._check_alike(message, rule, said)
        self._newest[kind] = max(iteration, self._newest.get(kind, -1))
        if kind == self._question:
            self._asked = max(self._asked, iteration)

    def _check_number(self, kind: str, rule: Rule, iteration: int, said: str) -> None:
        if rule.most == inf:
            return
        mark, since = 0.0, 0.0
        if rule.per is Per.ITERATION:
            mark, since = iteration, iteration - 1
        elif rule.per is Per.TEN_MINUTES:
            mark = time.monotonic()
            since = mark - _TEN_MINUTES
        marks = [other for other in self._marks.get(kind, ()) if other >= since]
        before = marks.count(mark) if rule.per is Per.ITERATION else len(marks)
        if before >= rule.most:
            raise OutOfTurn(f"{said} when {before} came {rule.per.value}, which is all that may")
        self._marks[kind] = [*marks, mark]

    def _check_alike(self, message: Message, rule: Rule, said: str) -> None:
        if not rule.alike:
            return
        tensors = [t.cpu().numpy().tobytes() for _, t in sorted(message.tensors.items())]
        digest = sha256(b"".join(tensors)).digest()
        iteration, before = self._tensors.get(message.kind, (-1, b""))
        if iteration == message.iteration and before != digest:
            raise OutOfTurn(f"{said} a second time, and not as the first time")
        self._tensors[message.kind] = message.iteration, digest
