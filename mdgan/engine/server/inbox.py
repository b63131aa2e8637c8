"""What comes in at the server: the next answer is returned, all other events go to the desk."""

from collections.abc import Collection
from typing import NamedTuple

from mdgan.engine.server.desk import Desk
from mdgan.engine.server.membership import Membership
from mdgan.messages import Message
from mdgan.transport.base import Received
from mdgan.transport.server_end import ServerTransport


class HostAnswer(NamedTuple):
    """A host has answered a question.

    Attributes:
        host: its number.
        workers: those of its workers that were asked and may take part.
        message: what it sent.
        num_bytes: what that took on the way.
    """

    host: int
    workers: list[int]
    message: Message
    num_bytes: int


class AnswerInbox:
    """Takes events off the transport; answers are returned, all else goes to the desk.

    Args:
        transport: the server's end.
        members: knows which host was asked for what.
        desk: takes in all other events.
        kinds: of the messages that answers come in.
    """

    def __init__(
        self,
        transport: ServerTransport,
        members: Membership,
        desk: Desk,
        kinds: Collection[str],
    ) -> None:
        self._transport = transport
        self._members = members
        self._desk = desk
        self._kinds = frozenset(kinds)
        self._early: list[Received] = []

    def next(self, timeout_seconds: float, iteration: int) -> HostAnswer | None:
        """Takes in one event.

        Args:
            timeout_seconds: how long to wait for it.
            iteration: the one that the server waits for. Answers to later ones are kept until the
                server waits for those, if it has asked; 0 keeps none.

        Returns:
            The answer, if the event is one to a question that was asked, now or before.
        """
        event = self._kept(iteration) or self._transport.receive(timeout_seconds)
        if not isinstance(event, Received) or event.message.kind not in self._kinds:
            self._desk.take(event)
            return None
        if 0 < iteration < event.message.iteration:
            self._keep(event)
            return None
        workers = self._members.paid(event.sender, event.message.iteration)
        if workers is None:
            return None
        return HostAnswer(event.sender, workers, event.message, event.num_bytes)

    def has_kept(self) -> bool:
        """Whether answers that came early are kept."""
        return bool(self._early)

    def settle(self) -> None:
        """Hosts are gone: forgets what they answered early."""
        here = self._members.hosts()
        self._early = [event for event in self._early if event.sender in here]

    def _keep(self, event: Received) -> None:
        """Keeps an answer to a question that the server has asked, but does not wait for yet."""
        host, i = event.sender, event.message.iteration
        before = sum((kept.sender, kept.message.iteration) == (host, i) for kept in self._early)
        if before < self._members.num_owed(host, i):
            self._early.append(event)

    def _kept(self, iteration: int) -> Received | None:
        for place, event in enumerate(self._early):
            if iteration == 0 or event.message.iteration <= iteration:
                return self._early.pop(place)
        return None
