"""What the engine lends to the server's part of an algorithm: asking, waiting, recording."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mdgan.engine.server.arrivals import Arrivals
from mdgan.engine.server.barrier import Barrier, Hosts
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.conduct import Conduct
from mdgan.engine.server.desk import Desk
from mdgan.engine.server.membership import Membership
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tracer import Span
from mdgan.transport.server_end import ServerTransport


@dataclass
class Engine:
    """The server, as an algorithm sees it.

    Attributes:
        transport: the server's end.
        members: the hosts and workers that take part.
        desk: takes in what hosts send on their own.
        conduct: knows whose answers could not be used.
        barrier: waits for all answers to a question.
        arrivals: waits for one answer at a time.
        checkpoints: says when a checkpoint is due.
        observer: records what people should know.
        await_hosts: waits for the hosts that take part in the next iteration; raises
            `AllWorkersLost` if none comes.
        stop_if_asked: to be called between two iterations, which `await_hosts` and `poll` do;
            raises `Interrupted`, with everything saved, if the user has asked the server to stop.
    """

    transport: ServerTransport
    members: Membership
    desk: Desk
    conduct: Conduct
    barrier: Barrier
    arrivals: Arrivals
    checkpoints: ServerCheckpoints
    observer: RunObserver
    await_hosts: Callable[[], Hosts]
    stop_if_asked: Callable[[], None]

    def span(self, name: str) -> AbstractContextManager[Span]:
        """A block that the report shows under a name."""
        return self.observer.tracer.span(name)

    def at(self, iteration: int) -> None:
        """From here on the server works on this iteration."""
        self.members.iteration = self.observer.tracer.iteration = iteration

    def poll(self) -> None:
        """Takes in what has come between two iterations, without waiting.

        Raises:
            Interrupted: the user has asked the server to stop.
        """
        while (event := self.transport.receive(0.0)) is not None:
            self.desk.take(event)
        self.stop_if_asked()

    def tell(self, host: int, message: Message) -> int:
        """Sends a message that needs no answer; returns its bytes."""
        return self.transport.send(host, message)

    def ask(self, iteration: int, asked: Hosts, question: Callable[[int], Message]) -> None:
        """Sends every host its question; from here on it owes an answer.

        Args:
            iteration: i, which the answers will bear.
            asked: the hosts, each with the workers that the question is for.
            question: makes the message for a host.
        """
        with self.span("send") as sending:
            for host in asked:
                sending.num_bytes += self.transport.send(host, question(host))
        self.members.owe(asked, iteration)
