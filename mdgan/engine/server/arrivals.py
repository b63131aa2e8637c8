"""The server's wait for the next answer, whichever host it comes from.

`Arrivals` is a policy over `AnswerInbox` beside `Barrier`: no worker waits for another one.
"""

import time
from collections.abc import Mapping

from mdgan.engine.answers import Answers
from mdgan.engine.server.barrier import Barrier
from mdgan.engine.server.reception import Reception


class Arrivals:
    """Gives one answer after another as they come.

    Args:
        reception: where answers come in.
        barrier: waits for the first answers.
    """

    def __init__(self, reception: Reception, barrier: Barrier) -> None:
        self._reception = reception
        self._barrier = barrier
        self._since: dict[int, float] = {}
        self._has_first = False

    def next(self, iteration: int, weights: Mapping[int, float] | None = None) -> Answers:
        """Waits for one event.

        The first answers are awaited together: only together they show which norm is usual, and
        what is applied cannot be taken back.

        Args:
            iteration: i, that of the first questions.
            weights: what hosts multiply answers by; 1 if not given.

        Returns:
            What can be used of the answer that came. Empty if nothing can, or if something else
            happened: hosts have come or gone, or the user has asked the server to stop.
        """
        if not self._has_first:
            self._has_first = True
            return self._barrier.collect(iteration, self._reception.members.busy(), weights)
        answers = Answers()
        with self._reception.tracer.span("wait") as waiting:
            answer = self._reception.inbox.next(self._seconds_left(), 0)
            if answer is not None:
                self._since.pop(answer.host, None)
                self._reception.intake.begin()
                self._reception.intake.take_in(answer, answers, weights)
                self._reception.attendance.answered(answers.losses)
                waiting.num_bytes = answer.num_bytes
        return answers

    def _seconds_left(self) -> float:
        """How long to wait for the next event; lets go of hosts that have taken too long."""
        now, owing = time.monotonic(), self._reception.members.busy()
        self._since = {host: self._since.get(host, now) for host in owing}
        ends = {host: since + self._reception.answer_seconds for host, since in self._since.items()}
        silent = [host for host, end in ends.items() if end <= now]
        self._reception.give_up_on(silent)
        return 0.0 if silent else min(ends.values(), default=now) - now
