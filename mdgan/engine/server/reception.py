"""What every way to wait for answers works with."""

from collections.abc import Iterable
from dataclasses import dataclass

from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.desk import Desk
from mdgan.engine.server.inbox import AnswerInbox
from mdgan.engine.server.membership import Membership
from mdgan.engine.stages.screen import AnswerChecks
from mdgan.observe.tracer import Tracer


@dataclass(frozen=True)
class Reception:
    """Where answers come in.

    Attributes:
        inbox: gives answers.
        intake: accepts what can be used of them.
        members: the hosts and workers that take part.
        desk: is told of hosts that are given up.
        attendance: counts answers.
        tracer: records how long the server waits.
        answer_seconds: a host that owes an answer for so long counts as lost, even if it lives.
    """

    inbox: AnswerInbox
    intake: AnswerChecks
    members: Membership
    desk: Desk
    attendance: Attendance
    tracer: Tracer
    answer_seconds: float

    def give_up_on(self, hosts: Iterable[int]) -> None:
        """Ends the links to hosts that have owed an answer for too long."""
        for host in hosts:
            self.desk.drop(host, f"no answer in {self.answer_seconds:g} s")
