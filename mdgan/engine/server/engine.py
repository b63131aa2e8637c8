"""What families and stages need of the server: it asks, waits, tells, and writes down.

`RunningEngine` is all of it. Who imports this module needs nothing of how answers are collected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.server.hosts import Hosts
from mdgan.engine.server.peers import Peers
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tracer import Span
from mdgan.transport.base import ServerEvent
from mdgan.transport.server_end import ServerTransport


class AllWorkersLost(RuntimeError):
    """No worker is left to train with, and none came in time; or their models return NaN."""


class AnswerCollector(Protocol):
    """Waits for what hosts answer, and screens it."""

    def collect(
        self,
        iteration: int,
        asked: Hosts,
        weights: Mapping[int, float] | None = None,
        form: AnswerForm | None = None,
        forms: Mapping[int, AnswerForm] | None = None,
        *,
        read: Callable[[Message], Any] | None = None,
        again: bool = False,
    ) -> Answers:
        """Waits for the answers to one question.

        Args:
            weights: what hosts multiply answers by before they add them up; 1 if not given.
            form: how they answer this question; the first that the algorithm has named by default.
            forms: how each worker does, if not all alike.
            read: reads what hosts have masked; see `AnswerChecks`.
            again: whether they were counted in this iteration already.

        Returns:
            The answers that came: all of them, or those of at least a quorum within the deadline.
        """

    def next_answer(self, iteration: int, weights: Mapping[int, float] | None = None) -> Answers:
        """Waits for one event.

        Returns:
            What can be used of the answer that came. Empty if nothing can, or if something else
            happened: hosts have come or gone, or the user has asked the server to stop.
        """

    def is_enough(self, hosts: Hosts) -> bool:
        """Whether some hosts are enough of those that live for an iteration to begin."""


class Engine(Protocol):
    """The server, as an algorithm sees it.

    Attributes:
        done: the last iteration that is done.
        stop_asked: whether the user has asked the server to stop.
        all_failed: whether all hosts have failed by themselves, so that none can come back.
        answer_seconds: after which a host that owes an answer counts as lost at the latest.
    """

    peers: Peers
    collector: AnswerCollector
    transport: ServerTransport
    observer: RunObserver
    done: int
    stop_asked: bool
    all_failed: bool
    answer_seconds: float

    def at(self, iteration: int) -> None:
        """The server works on this iteration from here on."""
        self.peers.at(iteration)

    def span(self, name: str) -> Span:
        """A block that is timed; see `Tracer`."""
        return self.observer.tracer.span(name)

    def note(self, text: str) -> None:
        """Logs one line."""
        self.observer.note(text)

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Records something that happens now and then; see `RunObserver`."""
        self.observer.event(name, iteration, **details)

    def tell(self, host: int, message: Message) -> int:
        """Sends a message that needs no answer; see `ServerTransport`."""
        return self.transport.send(host, message)

    def await_hosts(self) -> Hosts:
        """The hosts that take part in the next iteration; waits for some if there are too few.

        Raises:
            AllWorkersLost: none has come for as long as `patience`.
            Interrupted: the user has asked the server to stop; everything is saved.
        """

    def ask(self, iteration: int, asked: Hosts, question: Callable[[int], Message]) -> None:
        """Sends every host its question; from here on it owes an answer."""

    def poll(self) -> None:
        """Takes in what has come, without waiting; `Interrupted` if the user asked to stop."""

    def take_in(self, event: ServerEvent | None) -> None:
        """Takes in one event that is no answer, or None: there was no event for a while.

        Raises:
            Interrupted: the user has asked the server to stop, and for the second time if it
                finishes its iteration first.
            Fenced: a later server has taken over.
        """

    def handle_losses(self) -> None:
        """If hosts or workers are gone, all that may wait for them stop waiting."""

    def held_classes(self) -> list[Sequence[int]]:
        """How many samples of each class there are: in all, or of each worker that says."""

    def save(self, *, alone: bool = False) -> None:
        """Orders a checkpoint, of the server alone while no worker is there, if there are any."""

    def checkpoint_due(self, before: int, iteration: int, *, ends: bool = False) -> bool:
        """Whether a checkpoint follows an iteration; the question before was about `before`."""
