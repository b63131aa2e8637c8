"""The server's wait for answers: how long it is, for how many, and which are used.

`AnswerInbox` gives the next answer, and passes all other events on. `Barrier` is one
policy over it: an iteration ends when every host that was asked has answered, or when the deadline
has passed and enough of them have.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil, inf
from statistics import median
from typing import NamedTuple

import torch

from mdgan.engine.answers import AnswerForm, Answers, of_kind, read_answers
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.desk import Desk
from mdgan.engine.server.membership import Membership
from mdgan.engine.server.screening import Screening
from mdgan.engine.settings import DeadlineRule
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.base import Received
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


class HostAnswer(NamedTuple):
    """A host has answered a question.

    Attributes:
        host: its number.
        workers: those of its workers that were asked and may take part.
        message: what it sent.
    """

    host: int
    workers: list[int]
    message: Message


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
                server waits for those; 0 keeps none.

        Returns:
            The answer, if the event is one to a question that was asked, now or before.
        """
        event = self._kept(iteration) or self._transport.receive(timeout_seconds)
        if not isinstance(event, Received) or event.message.kind not in self._kinds:
            self._desk.take(event)
            return None
        if 0 < iteration < event.message.iteration:
            self._early.append(event)
            return None
        workers = self._members.paid(event.sender, event.message.iteration)
        return None if workers is None else HostAnswer(event.sender, workers, event.message)

    def has_kept(self) -> bool:
        """Whether answers that came early are kept."""
        return bool(self._early)

    def _kept(self, iteration: int) -> Received | None:
        for place, event in enumerate(self._early):
            if iteration == 0 or event.message.iteration <= iteration:
                return self._early.pop(place)
        return None


class Barrier:
    """Waits for answers as long as it is worth waiting.

    Args:
        inbox: gives answers.
        transport: the server's end.
        members: the hosts and workers that take part.
        desk: is told of hosts that are given up, and of workers that are shut out.
        attendance: counts answers.
        tracer: records how long the server waits.
        deadline: when to go on without the answers that are missing.
        screenings: say which answers cannot be used, to each kind of question; the first is for
            questions of which no kind is said.
        device: the one that answers are moved to.
        answer_seconds: after this long without its answer a host counts as lost, even if it lives.
        counts_busy: whether workers that are busy with an earlier question count where a quorum
            must answer.
        lacking: tells which workers an iteration cannot do without; see `ServerPart`.
    """

    def __init__(
        self,
        inbox: AnswerInbox,
        transport: ServerTransport,
        members: Membership,
        desk: Desk,
        attendance: Attendance,
        tracer: Tracer,
        deadline: Deadline,
        screenings: Sequence[Screening],
        device: torch.device,
        *,
        answer_seconds: float,
        counts_busy: bool,
        lacking: Callable[[Collection[int]], str],
    ) -> None:
        self._inbox = inbox
        self._transport = transport
        self._members = members
        self._desk = desk
        self._attendance = attendance
        self._tracer = tracer
        self._deadline = deadline
        self._screenings = {screening.form.kind: screening for screening in screenings}
        self._form = screenings[0].form
        self._forms: Mapping[int, AnswerForm] = {}
        self._device = device
        self._answer_seconds = answer_seconds
        self._counts_busy = counts_busy
        self._lacking = lacking

    def await_enough(self, patience_end: float) -> Hosts:
        """Waits until enough of the live workers owe nothing.

        Args:
            patience_end: when to stop waiting if no worker lives, by the monotonic clock.

        Returns:
            The hosts that take part in the next iteration, with their workers; none if none came,
            or if the user has asked the server to stop.
        """
        begin = time.monotonic()
        while self._inbox.has_kept():
            self._take_late(0.0)
        while True:
            free, live = self._members.free(), self._members.taking_part()
            num_live = sum(map(len, live.values()))
            lacks = bool(self._lacking(workers_of(live)))
            if self.is_enough(sum(map(len, free.values())), num_live) and not self._lacking(
                workers_of(free)
            ):
                return free
            if self._desk.stop_asked:
                return {}
            now = time.monotonic()
            if lacks and now >= patience_end:
                return {}
            if not lacks and now - begin > self._answer_seconds:
                self._give_up_on(set(live) - set(free))
                continue
            until = patience_end if lacks else begin + self._answer_seconds
            self._take_late(max(0.0, min(until - now, 1.0)))

    def _take_late(self, timeout_seconds: float) -> None:
        """Takes in one event; an answer that comes now is to an earlier question: discards it."""
        late = self._inbox.next(timeout_seconds, 0)
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

        Returns:
            The answers that came: all of them, or those of at least a quorum within the deadline.
        """
        received = self._transport.traffic.received
        self._form = next(iter(self._screenings.values())).form if form is None else form
        self._forms = forms or {}
        with self._tracer.span("wait") as waiting:
            before = received.total()
            answers = self._await_answers(iteration, asked, weights or {})
            for kind in {form.kind: None for form in (forms or {0: self._form}).values()}:
                screening = self._screenings[kind]
                for worker, reason in screening.look_back().items():
                    self._refuse(worker, reason, screening, answers)
            self._attendance.answered(answers.losses)
            waiting.num_bytes = received.total() - before
        return answers

    def _await_answers(self, iteration: int, asked: Hosts, weights: Mapping[int, float]) -> Answers:
        answers, begin = Answers(), time.monotonic()
        limit = self._deadline.limit_seconds()
        while late := self._late(iteration, asked):
            waited = time.monotonic() - begin
            if waited >= self._answer_seconds:
                self._give_up_on(late)
            elif waited >= limit and len(answers.losses) >= self._least(answers, asked):
                live = self._members.hosts()
                workers = [n for host in late for n in asked[host] if n in live[host]]
                self._attendance.late(iteration, workers)
                break
            else:
                until = min(self._answer_seconds, limit if waited < limit else inf)
                answer = self._inbox.next(until - waited, iteration)
                if answer is None:
                    continue
                if answer.message.iteration == iteration and answer.host in asked:
                    self._take_in(answer, answers, weights)
                    self._deadline.learn([time.monotonic() - begin])
                else:  # to an earlier question, or to one of this iteration that was given up
                    self._attendance.back(self._members.iteration, answer.workers)
        return answers

    def _least(self, answers: Answers, asked: Hosts) -> int:
        """How many workers must answer: a share of those asked or busy; newcomers do not count."""
        live, free = self._members.taking_part(), self._members.free()
        counted = [host for host in live if host in answers.hosts or host not in free]
        num_asked = sum(len(set(asked[h]) & set(live[h])) for h in counted if h in asked)
        busy = sum(self._members.num_busy(host) for host in counted if host not in asked)
        return self._deadline.least(num_asked + busy if self._counts_busy else num_asked)

    def _late(self, iteration: int, asked: Hosts) -> list[int]:
        """The live hosts among those asked that have not answered."""
        members = {host: self._members.member(host) for host in asked}
        return [host for host, m in members.items() if m is not None and iteration in m.owes]

    def _take_in(self, answer: HostAnswer, answers: Answers, weights: Mapping[int, float]) -> None:
        """Accepts what can be used of one host's answer."""
        answers.hosts.add(answer.host)
        by_kind: dict[str, set[int]] = {}
        for worker in answer.workers:
            by_kind.setdefault(self._form_of(worker).kind, set()).add(worker)
        for kind, workers in by_kind.items():
            message, screening = of_kind(answer.message, kind), self._screenings[kind]
            given = read_answers(message, screening.form, self._forms)
            self._take_in_form(given, workers, screening, answers, weights)

    def _take_in_form(
        self,
        given: Answers,
        alone: set[int],
        screening: Screening,
        answers: Answers,
        weights: Mapping[int, float],
    ) -> None:
        """Accepts what can be used of the answers that some workers of a host gave in one form."""
        for part in given.sums:
            if set(part.workers) <= alone:
                alone -= set(part.workers)
                mean = (part.total / sum(weights.get(n, 1.0) for n in part.workers)).float()
                answers.sums.append(part._replace(total=part.total.to(self._device)))
                answers.losses.update((n, given.losses[n]) for n in part.workers)
                refused = screening.refuse_together(part.workers, mean)
                for worker, reason in refused.items():
                    self._refuse(worker, reason, screening, answers)
        for worker in sorted(alone):
            self._judge(worker, given, screening, answers)

    def _judge(self, worker: int, given: Answers, screening: Screening, answers: Answers) -> None:
        """Accepts one worker's answer, or refuses it."""
        nothing = torch.empty(0)
        answer = given.singles.get(worker, nothing)
        beside = {name: given.beside[name].get(worker, nothing) for name in given.beside}
        form = self._form_of(worker)
        for name in form.beside.keys() - beside.keys():
            beside[name] = nothing
        reason = screening.refuse(worker, answer, beside, form)
        if reason is not None:
            self._refuse(worker, reason, screening, answers)
            return
        answers.singles[worker] = answer.to(self._device)
        answers.losses[worker] = given.losses[worker]
        for name, told in beside.items():
            answers.beside.setdefault(name, {})[worker] = told.to(self._device)

    def _form_of(self, worker: int) -> AnswerForm:
        """How a worker answers the present question."""
        return self._forms.get(worker, self._form)

    def _refuse(self, worker: int, reason: str, screening: Screening, answers: Answers) -> None:
        """A worker's answer cannot be used; it has one strike more."""
        answers.drop(worker)
        strikes = screening.strikes_of(worker)
        self._attendance.refused(self._members.iteration, worker, reason, strikes)
        if screening.is_out(worker):
            self._desk.shut_out(worker, f"{strikes} unusable answers, the last: {reason}")

    def _give_up_on(self, hosts: Collection[int]) -> None:
        for host in hosts:
            self._transport.drop(host)
            self._desk.lose(host, f"no answer in {self._answer_seconds:g} s")
