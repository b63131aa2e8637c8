"""The feedback of one iteration: who is waited for, for how long, and what is believed."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.deadline import Deadline
from mdgan.engine.server.membership import Roster
from mdgan.engine.server.reception import Reception
from mdgan.engine.server.screening import Screening
from mdgan.families.mdgan.messages import Answer, Form, read_feedback
from mdgan.gan.exact_sum import FeedbackSum
from mdgan.messages import Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Received, ServerEvent, ServerTransport


@dataclass
class Answers:
    """What came back in one iteration.

    Attributes:
        feedbacks: F_n of the workers whose answer can be used, each [b, C, H, W].
        sums: of those workers whose host has added up their feedback.
        losses: J_disc and J_gen of each, float32 [2].
        verdicts: D_n(X^(g)) of those in `feedbacks`, float32 [b], if the form asks for them.
        hosts: who answered, with whatever.
    """

    feedbacks: dict[int, Tensor] = field(default_factory=dict)
    sums: list[FeedbackSum] = field(default_factory=list)
    losses: dict[int, Tensor] = field(default_factory=dict)
    verdicts: dict[int, Tensor] = field(default_factory=dict)
    hosts: set[int] = field(default_factory=set)

    def drop(self, worker: int) -> None:
        """Forgets a worker's answer, and that of those with whom it was added up."""
        lost = [part for part in self.sums if worker in part.workers]
        self.sums = [part for part in self.sums if worker not in part.workers]
        self.feedbacks.pop(worker, None)
        self.verdicts.pop(worker, None)
        for dropped in {worker, *(n for part in lost for n in part.workers)}:
            self.losses.pop(dropped, None)


class Collector:
    """Waits for feedback as long as it is worth waiting.

    Args:
        transport: the server's end.
        roster: who takes part.
        reception: takes in everything else that comes meanwhile.
        deadline: when to go on without the rest.
        screening: what is no usable feedback.
        attendance: counts who answered.
        timeouts: after `answer` a host counts as lost although it is alive.
        device: where feedback is wanted.
        form: how feedback travels.
        counts_busy: whether workers that are busy with an earlier question count where a quorum
            must answer.
    """

    def __init__(
        self,
        transport: ServerTransport,
        roster: Roster,
        reception: Reception,
        deadline: Deadline,
        screening: Screening,
        attendance: Attendance,
        timeouts: Timeouts,
        device: torch.device,
        form: Form,
        *,
        counts_busy: bool = True,
    ) -> None:
        self._transport = transport
        self._roster = roster
        self._reception = reception
        self._deadline = deadline
        self._screening = screening
        self._attendance = attendance
        self._answer_seconds = timeouts.answer
        self._device = device
        self._form = form
        self._counts_busy = counts_busy
        self._early: list[Received] = []
        self._weights: Mapping[int, float] = {}
        self._asked: Collection[int] = ()

    def await_enough(self, patience_end: float) -> Mapping[int, Collection[int]]:
        """Waits until enough of the live workers owe nothing.

        Args:
            patience_end: when to stop waiting, by the monotonic clock.

        Returns:
            The hosts that take part in the next iteration, with their workers; none if nobody came.
        """
        begin = time.monotonic()
        self._take_early(Answers(), -1)
        while True:
            free, live = self._roster.free(), self._roster.taking_part()
            num_live = sum(map(len, live.values()))
            if self.is_enough(sum(map(len, free.values())), num_live):
                return free
            now = time.monotonic()
            if not live and now >= patience_end:
                return {}
            if live and now - begin > self._answer_seconds:
                self._give_up_on(set(live) - set(free), self._answer_seconds)
                continue
            until = begin + self._answer_seconds if live else patience_end
            self._take(self._transport.receive(max(0.0, min(until - now, 1.0))), Answers())

    def is_enough(self, num_free: int, num_live: int) -> bool:
        """Whether an iteration may begin with so many of the workers that live."""
        return num_live > 0 and num_free >= self._deadline.least(num_live)

    def collect(
        self,
        iteration: int,
        hosts: Mapping[int, Collection[int]],
        weights: Mapping[int, float] | None = None,
    ) -> Answers:
        """Waits for feedback.

        Args:
            iteration: i.
            hosts: those that owe an answer to it, with their workers.
            weights: what hosts multiply answers by before they add them up; 1 if not given.

        Returns:
            The answers that came: all of them, or those within the deadline, but of a quorum.
        """
        answers, begin = Answers(), time.monotonic()
        self._weights = weights or {}
        self._asked = hosts.keys()
        self._take_early(answers, iteration)
        limit = self._deadline.limit_seconds()
        while late := self._late(iteration, hosts):
            waited = time.monotonic() - begin
            if waited >= self._answer_seconds:
                self._give_up_on(late, self._answer_seconds)
            elif waited >= limit and len(answers.losses) >= self._least(answers, hosts):
                live = self._roster.hosts()
                workers = [n for host in late for n in hosts[host] if n in live[host]]
                self._attendance.late(iteration, workers)
                break
            else:
                until = min(self._answer_seconds, limit if waited < limit else inf)
                event = self._transport.receive(until - waited)
                if self._take(event, answers, iteration):
                    self._deadline.learn([time.monotonic() - begin])
        for worker, reason in self._screening.look_back().items():
            self._disbelieve(worker, reason, answers)
        self._attendance.answered(answers.losses)
        return answers

    def _least(self, answers: Answers, hosts: Mapping[int, Collection[int]]) -> int:
        """How many must answer: of those who were asked or are busy, not of those just come."""
        live, free = self._roster.taking_part(), self._roster.free()
        counted = [host for host in live if host in answers.hosts or host not in free]
        asked = sum(len(set(hosts[host]) & set(live[host])) for host in counted if host in hosts)
        busy = sum(self._roster.num_busy(host) for host in counted if host not in hosts)
        return self._deadline.least(asked + busy if self._counts_busy else asked)

    def _late(self, iteration: int, hosts: Collection[int]) -> list[int]:
        """The live hosts among those asked that have not answered."""
        members = {host: self._roster.member(host) for host in hosts}
        return [host for host, m in members.items() if m is not None and iteration in m.owes]

    def _take(self, event: ServerEvent | None, answers: Answers, iteration: int = -1) -> bool:
        """Takes in one event; returns whether it was an answer to this iteration."""
        if not isinstance(event, Received) or event.message.kind is not self._form.kind:
            self._reception.take(event)
            return False
        if 0 < iteration < event.message.iteration:  # of who was sent the next batches already
            self._early.append(event)
            return False
        return self._take_feedback(event.sender, event.message, answers, iteration)

    def _take_early(self, answers: Answers, iteration: int) -> None:
        """Takes in the answers that came before their time."""
        early, self._early = self._early, []
        for event in early:
            self._take(event, answers, iteration)

    def _take_feedback(self, host: int, message: Message, answers: Answers, iteration: int) -> bool:
        asked = self._roster.paid(host, message.iteration)
        if asked is None:
            return False  # an answer to what nobody asked
        # Not to this question: to an earlier one, or one of the same iteration that was given up.
        if message.iteration != iteration or host not in self._asked:
            self._attendance.back(self._roster.iteration, asked)
            return False
        answers.hosts.add(host)
        answer = read_feedback(message, self._form)
        alone = set(asked)
        for part in answer.sums:
            if set(part.workers) <= alone:
                self._judge_sum(part, answer.losses, answers)
                alone -= set(part.workers)
        for worker in sorted(alone):
            self._judge(worker, answer, answers)
        return True

    def _judge(self, worker: int, answer: Answer, answers: Answers) -> None:
        """Believes one worker's answer, or counts a strike."""
        feedback = answer.singles.get(worker, torch.empty(0))
        verdicts = answer.verdicts.get(worker, torch.empty(0)) if self._form.verdicts else None
        reason = self._screening.refuse(worker, feedback, verdicts)
        if reason is not None:
            self._disbelieve(worker, reason, answers)
            return
        answers.feedbacks[worker] = feedback.to(self._device)
        answers.losses[worker] = answer.losses[worker]
        if verdicts is not None:
            answers.verdicts[worker] = verdicts.to(self._device)

    def _judge_sum(self, part: FeedbackSum, losses: Mapping[int, Tensor], answers: Answers) -> None:
        """Believes an answer for several workers, by their mean, or counts a strike for each."""
        weight = sum(self._weights.get(worker, 1.0) for worker in part.workers)
        mean = (part.total / weight).float()
        answers.sums.append(part._replace(total=part.total.to(self._device)))
        answers.losses.update((worker, losses[worker]) for worker in part.workers)
        for worker, reason in self._screening.refuse_together(part.workers, mean).items():
            self._disbelieve(worker, reason, answers)

    def _disbelieve(self, worker: int, reason: str, answers: Answers) -> None:
        """A worker's answer cannot be used; it has one strike more."""
        answers.drop(worker)
        strikes = self._screening.strikes_of(worker)
        self._attendance.refused(self._roster.iteration, worker, reason, strikes)
        if self._screening.is_out(worker):
            self._reception.shut_out(worker, f"{strikes} unusable answers, the last: {reason}")

    def _give_up_on(self, hosts: Collection[int], seconds: float) -> None:
        for host in hosts:
            self._transport.drop(host)
            self._reception.lose(host, f"no answer in {seconds:g} s")
