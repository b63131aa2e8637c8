"""The server's wait for the next answer, whichever host it comes from.

`Arrivals` is a policy over `AnswerInbox` beside `Barrier`: no worker waits for another one.
"""

import time

from mdgan.engine.answers import Answers
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.barrier import Barrier
from mdgan.engine.server.desk import Desk
from mdgan.engine.server.inbox import AnswerInbox
from mdgan.engine.server.intake import Intake
from mdgan.engine.server.membership import Membership
from mdgan.observe.tracer import Tracer


class Arrivals:
    """Gives one answer after another as they come.

    Args:
        inbox: gives answers.
        members: the hosts and workers that take part.
        desk: is told of hosts that are given up.
        attendance: counts answers.
        tracer: records how long the server waits.
        intake: accepts what can be used of answers.
        barrier: waits for the first answers.
        answer_seconds: a host that owes answers and sends none for so long counts as lost, even if
            it lives.
    """

    def __init__(
        self,
        inbox: AnswerInbox,
        members: Membership,
        desk: Desk,
        attendance: Attendance,
        tracer: Tracer,
        intake: Intake,
        barrier: Barrier,
        *,
        answer_seconds: float,
    ) -> None:
        self._inbox = inbox
        self._barrier = barrier
        self._members = members
        self._desk = desk
        self._attendance = attendance
        self._tracer = tracer
        self._intake = intake
        self._answer_seconds = answer_seconds
        self._since: dict[int, float] = {}
        self._has_first = False

    def next(self, iteration: int) -> Answers:
        """Waits for one event.

        The first answers are awaited together: only together they show which norm is usual, and
        what is applied cannot be taken back.

        Args:
            iteration: i, that of the first questions.

        Returns:
            What can be used of the answer that came. Empty if nothing can, or if something else
            happened: hosts have come or gone, or the user has asked the server to stop.
        """
        if not self._has_first:
            self._has_first = True
            return self._barrier.collect(iteration, self._members.busy())
        answers = Answers()
        with self._tracer.span("wait") as waiting:
            answer = self._inbox.next(self._seconds_left(), 0)
            if answer is not None:
                self._since.pop(answer.host, None)
                self._intake.begin()
                self._intake.take_in(answer, answers)
                self._attendance.answered(answers.losses)
                waiting.num_bytes = answer.num_bytes
        return answers

    def _seconds_left(self) -> float:
        """How long to wait for the next event; lets go of hosts that have taken too long."""
        now, owing = time.monotonic(), self._members.busy()
        self._since = {host: self._since.get(host, now) for host in owing}
        ends = {host: since + self._answer_seconds for host, since in self._since.items()}
        silent = [host for host, end in ends.items() if end <= now]
        for host in silent:
            self._desk.drop(host, f"no answer in {self._answer_seconds:g} s")
        return 0.0 if silent else min(ends.values(), default=now) - now
