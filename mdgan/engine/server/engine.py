"""The server's engine as families and stages see it: ask hosts, wait for answers, record.

`RunningEngine` implements it. Modules that import only this one do not import how that is done.
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
    """Waits for the answers of hosts, and screens them."""

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
            asked: the hosts, each with the workers that owe an answer.
            weights: by worker, what its host multiplies its answer by before it adds up; else 1.
            form: the form of the answers; by default the first of the algorithm's forms.
            forms: by worker, the form of its answer, if the forms differ.
            read: reads what hosts have masked; see `AnswerChecks`.
            again: whether these workers' answers were counted in this iteration already.

        Returns:
            All answers, or those of at least a quorum that came within the deadline.
        """

    def next_answer(self, iteration: int, weights: Mapping[int, float] | None = None) -> Answers:
        """Waits for one event.

        Returns:
            The usable part of the answer that came. Empty if there is none, or if the event was
            another one: a host joined or was lost, or the user asked the server to stop.
        """

    def is_enough(self, hosts: Hosts) -> bool:
        """Whether these hosts are enough of the live ones to begin an iteration."""


class Engine(Protocol):
    """The server, as an algorithm sees it.

    Attributes:
        done: the last completed iteration.
        stop_asked: whether the user has asked the server to stop.
        all_failed: whether all hosts have failed by themselves, so that none can come back.
        answer_seconds: a host that has owed an answer for this long counts as lost.
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
        """The server begins to work on an iteration."""
        self.peers.at(iteration)

    def span(self, name: str) -> Span:
        """A context manager that times its block; see `Tracer`."""
        return self.observer.tracer.span(name)

    def note(self, text: str) -> None:
        """Logs one line."""
        self.observer.note(text)

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Records an event of the run; see `RunObserver`."""
        self.observer.event(name, iteration, **details)

    def tell(self, host: int, message: Message) -> int:
        """Sends a host a message that needs no answer; see `ServerTransport`."""
        return self.transport.send(host, message)

    def await_hosts(self) -> Hosts:
        """Returns the hosts of the next iteration; waits for more if there are too few.

        Raises:
            AllWorkersLost: too few have come for as long as `patience`.
            Interrupted: the user has asked the server to stop; everything is saved.
        """

    def ask(self, iteration: int, asked: Hosts, question: Callable[[int], Message]) -> None:
        """Sends each host the question made for its number; the host then owes an answer."""

    def poll(self) -> None:
        """Handles all events that have come; `Interrupted` if the user asked to stop."""

    def take_in(self, event: ServerEvent | None) -> None:
        """Handles one event that is no answer; None means that there was no event for a while.

        Raises:
            Interrupted: the user has asked to stop before training began, or for the second time.
            Fenced: a later server has taken over.
        """

    def handle_losses(self) -> None:
        """If hosts or workers were lost, tells every component that may wait for them."""

    def held_classes(self) -> list[Sequence[int]]:
        """Sample counts by class: one list for all data, or one for each worker that tells it."""

    def save(self, *, alone: bool = False) -> None:
        """Makes a checkpoint if the run has any; `alone`: of the server, as there is no worker."""

    def checkpoint_due(self, before: int, iteration: int, *, ends: bool = False) -> bool:
        """Whether to make a checkpoint after an iteration; `before`: of the last such question."""
