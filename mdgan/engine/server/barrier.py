"""The server's wait for all answers to a question: how long it is, and for how many.

`Barrier` is one policy over `AnswerInbox`: an iteration ends when every host that was asked has
answered, or when the deadline has passed and enough of them have. The other is `Arrivals`.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil, inf
from statistics import median
from typing import Any

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.server.reception import Reception
from mdgan.engine.settings import DeadlineRule
from mdgan.messages import Message
from mdgan.transport.server_end import ServerTransport

_REMEMBERED = 200


class Deadline:
    """How long the server waits for answers, and for how many of them.

    Args:
        rule: when to go on; None to wait for every worker that lives.
        quorum: the least fraction of the live workers that must have answered, in ]0, 1].
    """

    def __init__(self, rule: DeadlineRule | None, quorum: float) -> None:
        self._seconds, self._factor = rule or (0.0, 0.0)
        self._quorum = quorum
        self._times: deque[float] = deque(maxlen=_REMEMBERED)

    def limit_seconds(self) -> float:
        """How long after asking the server goes on; infinite if no worker is left behind."""
        if self._seconds:
            return self._seconds
        if self._factor and self._times:
            return self._factor * median(self._times)
        return inf

    def least(self, num_live: int) -> int:
        """How many workers at least must take part in an iteration.

        Args:
            num_live: the workers that live, busy or not.
        """
        if not self._seconds and not self._factor:
            return num_live
        return min(num_live, max(1, ceil(self._quorum * num_live)))

    def learn(self, answer_seconds: Iterable[float]) -> None:
        """Takes in how long answers took."""
        self._times.extend(answer_seconds)


Hosts = Mapping[int, Collection[int]]
"""Hosts, each with the workers that a question is for."""


def workers_of(hosts: Hosts) -> list[int]:
    """The workers of some hosts, in increasing order."""
    return sorted(worker for carried in hosts.values() for worker in carried)


class Barrier:
    """Waits for answers as long as it is worth waiting.

    Args:
        reception: where answers come in.
        transport: the server's end.
        deadline: when to go on without the answers that are missing.
        counts_busy: whether workers that are busy with an earlier question count where a quorum
            must answer.
        lacking: see below.

    Attributes:
        lacking: tells which workers an iteration cannot do without; see `ServerPart`.
    """

    def __init__(
        self,
        reception: Reception,
        transport: ServerTransport,
        deadline: Deadline,
        *,
        counts_busy: bool,
        lacking: Callable[[Collection[int]], str],
    ) -> None:
        self._reception = reception
        self._transport = transport
        self._members = reception.members
        self._attendance = reception.attendance
        self._deadline = deadline
        self._counts_busy = counts_busy
        self.lacking = lacking

    def await_enough(self, patience_end: float) -> Hosts:
        """Waits until enough of the live workers owe nothing.

        Args:
            patience_end: when to stop waiting if no worker lives, by the monotonic clock.

        Returns:
            The hosts that take part in the next iteration, with their workers; none if none came,
            or if the user has asked the server to stop.
        """
        begin = time.monotonic()
        while self._reception.inbox.has_kept():
            self._take_late(0.0)
        while True:
            free, live = self._members.free(), self._members.taking_part()
            num_live = sum(map(len, live.values()))
            lacks = bool(self.lacking(workers_of(live)))
            if self.is_enough(sum(map(len, free.values())), num_live) and not self.lacking(
                workers_of(free)
            ):
                return free
            if self._reception.desk.stop_asked:
                return {}
            now = time.monotonic()
            if lacks and now >= patience_end:
                return {}
            if not lacks and now - begin > self._reception.answer_seconds:
                self._reception.give_up_on(set(live) - set(free))
                continue
            until = patience_end if lacks else begin + self._reception.answer_seconds
            self._take_late(max(0.0, min(until - now, 1.0)))

    def _take_late(self, timeout_seconds: float) -> None:
        """Takes in one event; an answer that comes now is to an earlier question: discards it."""
        late = self._reception.inbox.next(timeout_seconds, 0)
        if late is not None:
            self._attendance.back(self._members.iteration, late.workers)

    def is_enough(self, num_free: int, num_live: int) -> bool:
        """Whether enough of the live workers are free for an iteration to begin."""
        return num_live > 0 and num_free >= self._deadline.least(num_live)

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
            iteration: i.
            asked: the hosts that owe an answer to it, with their workers.
            weights: what hosts multiply answers by before they add them up; 1 if not given.
            form: how they answer this question, one of those that the algorithm has named; the
                first if not given.
            forms: how each worker does, if not all alike; each of a kind that the algorithm has
                named.
            read: reads what hosts have masked; see `AnswerChecks.begin`.
            again: whether they were counted in this iteration already.

        Returns:
            The answers that came: all of them, or those of at least a quorum within the deadline.
        """
        received = self._transport.traffic.received
        self._reception.intake.begin(form, forms, read)
        with self._reception.tracer.span("wait") as waiting:
            before = received.total()
            answers = self._await_answers(iteration, asked, weights or {})
            self._reception.intake.look_back(answers)
            if not again:
                self._attendance.answered(answers.losses)
            waiting.num_bytes = received.total() - before
        return answers

    def _await_answers(self, iteration: int, asked: Hosts, weights: Mapping[int, float]) -> Answers:
        answers, begin = Answers(), time.monotonic()
        limit = self._deadline.limit_seconds()
        while late := self._late(iteration, asked):
            waited = time.monotonic() - begin
            if waited >= self._reception.answer_seconds:
                self._reception.give_up_on(late)
            elif waited >= limit and self._may_go_on(answers, asked):
                live = self._members.hosts()
                workers = [n for host in late for n in asked[host] if n in live[host]]
                self._attendance.late(iteration, workers)
                break
            else:
                until = min(self._reception.answer_seconds, limit if waited < limit else inf)
                answer = self._reception.inbox.next(until - waited, iteration)
                if answer is None:
                    continue
                if answer.message.iteration == iteration and answer.host in asked:
                    self._reception.intake.take_in(answer, answers, weights)
                    self._deadline.learn([time.monotonic() - begin])
                else:  # to an earlier question, or to one of this iteration that was given up
                    self._attendance.back(self._members.iteration, answer.workers)
        return answers

    def _may_go_on(self, answers: Answers, asked: Hosts) -> bool:
        """Whether enough workers have answered, and among them those that it takes."""
        enough = len(answers.losses) >= self._least(answers, asked)
        return enough and not self.lacking(answers.losses)

    def _least(self, answers: Answers, asked: Hosts) -> int:
        """How many workers must answer: a share of those asked or busy; newcomers do not count."""
        live, free = self._members.taking_part(), self._members.free()
        counted = [host for host in live if host in answers.hosts or host not in free]
        num_asked = sum(len(set(asked[h]) & set(live[h])) for h in counted if h in asked)
        owing = self._members.busy()
        busy = sum(len(owing.get(host, ())) for host in counted if host not in asked)
        return self._deadline.least(num_asked + busy if self._counts_busy else num_asked)

    def _late(self, iteration: int, asked: Hosts) -> list[int]:
        """The live hosts among those asked that have not answered."""
        members = {host: self._members.member(host) for host in asked}
        return [host for host, m in members.items() if m is not None and iteration in m.owes]
