"""How the server waits for answers: for all answers to one question, or for the next one.

In an iteration with a barrier the server waits until every asked host has answered, or until the
deadline has passed and enough hosts have. By arrival no worker waits for another one.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil, inf
from statistics import median
from typing import Any

from typing_extensions import override

from mdgan.engine.answers import ANSWERS, AnswerForm, Answers
from mdgan.engine.parts import ServerPart
from mdgan.engine.server.engine import AnswerCollector, Engine
from mdgan.engine.server.hosts import HostAnswer, Hosts, workers_of
from mdgan.engine.settings import DeadlineRule, RunSettings
from mdgan.engine.stages.screen import LEAST_VOTES, AnswerChecks, Screening
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Received

_REMEMBERED = 200
_ENOUGH_TO_KNOW = 20
_NOT_USUAL = 20  # a host that takes this many times the median is taken for one that never answers
_SWAPS = 2  # a host may wait one swap's time for another host, and needs as long for itself


class Deadline:
    """How long the server waits for answers, and for which fraction of the live workers.

    Without a rule the server waits for every live worker. `times`: seconds that past answers took.

    Args:
        limits: the server gives a host up that has owed an answer for `answer` seconds. If answers
            usually take far less, it gives the host up earlier, but not before two swap times.
    """

    def __init__(self, rule: DeadlineRule | None, quorum: float, limits: Timeouts) -> None:
        self._seconds, self._factor = rule or (0.0, 0.0)
        self._quorum = quorum
        self._most_seconds = limits.answer
        self.least_patience_seconds = min(limits.answer, _SWAPS * limits.swap)
        self.times: deque[float] = deque(maxlen=_REMEMBERED)

    def limit_seconds(self) -> float:
        """After how many seconds the server goes on without late answers; infinite for never."""
        if self._seconds:
            return self._seconds
        return self._factor * median(self.times) if self._factor and self.times else inf

    def patience_seconds(self) -> float:
        """How long a host may owe an answer before it is given up."""
        if len(self.times) < _ENOUGH_TO_KNOW:
            return self._most_seconds
        slow = max(self.least_patience_seconds, _NOT_USUAL * median(self.times))
        return min(self._most_seconds, slow)

    def least(self, num_live: int) -> int:
        """The fewest workers that must take part in an iteration."""
        if not self._seconds and not self._factor:
            return num_live
        return min(num_live, max(1, ceil(self._quorum * num_live)))


class Collector(AnswerCollector):
    """Takes in events while the server waits for answers; passes other events to the engine.

    A host that owes an answer for too long (see `Deadline`) counts as lost, even if it lives.
    """

    def __init__(
        self, engine: Engine, part: ServerPart, settings: RunSettings, limits: Timeouts
    ) -> None:
        workers = range(1, settings.num_workers + 1)
        voters = workers if len(workers) >= LEAST_VOTES else None
        strikes = engine.peers.strikes
        self._screenings = {form.kind: Screening(form, strikes, voters) for form in part.forms}
        self._part = part
        self._kinds = {ANSWERS, Kind.COUNTS, *(form.kind for form in part.forms)}
        self._engine = engine
        self._peers = engine.peers
        self._deadline = Deadline(settings.faults.deadline, settings.faults.quorum, limits)
        self._early_answers: list[Received] = []
        self._owing_since: dict[int, float] = {}  # by host; for `next_answer`
        self._has_first = False

    # Single events.

    def take_one(self, timeout_seconds: float) -> None:
        """Takes in one event; discards an answer, since it must be to an earlier question."""
        answer = self._next(timeout_seconds)
        if answer is not None:
            self._peers.attendance.back(answer.workers)

    def _next(self, timeout_seconds: float, iteration: int = 0) -> HostAnswer | None:
        event = self._take_early(iteration) or self._engine.transport.receive(timeout_seconds)
        if not isinstance(event, Received) or event.message.kind not in self._kinds:
            self._engine.take_in(event)
            return None
        if 0 < iteration < event.message.iteration:
            # The server has asked this question, but waits for another one's answers first.
            host, i = event.sender, event.message.iteration
            early = [(other.sender, other.message.iteration) for other in self._early_answers]
            if early.count((host, i)) < self._peers.num_owed(host, i):
                self._early_answers.append(event)
            return None
        workers = self._peers.paid(event.sender, event.message.iteration)
        if workers is None:
            return None
        return HostAnswer(event.sender, workers, event.message, num_bytes=event.num_bytes)

    def _take_early(self, iteration: int) -> Received | None:
        for place, event in enumerate(self._early_answers):
            if iteration == 0 or event.message.iteration <= iteration:
                return self._early_answers.pop(place)
        return None

    def on_lost(self) -> None:
        """Forgets early answers of lost hosts."""
        hosts = self._peers.hosts()
        self._early_answers = [event for event in self._early_answers if event.sender in hosts]

    # Waiting before a question.

    def await_enough(self, patience_end: float) -> Hosts:
        """Waits until enough of the live workers owe no answer, at most until `patience_end`.

        Returns:
            The hosts of the next iteration, with their workers; empty if workers are still lacking
            at `patience_end`, or if the user has asked the server to stop.
        """
        begin = time.monotonic()
        while self._early_answers:
            self.take_one(0.0)
        while True:
            free, live = self._peers.free(), self._peers.taking_part()
            lacks = bool(self.lacking(workers_of(live)))
            if self.is_enough(free) and not self.lacking(workers_of(free)):
                return free
            now, patience = time.monotonic(), self._deadline.patience_seconds()
            is_over = self._engine.all_failed or now >= patience_end
            if self._engine.stop_asked or (lacks and is_over):
                return {}
            if not lacks and now - begin > patience:
                self._give_up_on(set(live) - set(free), patience)
                continue
            until = patience_end if lacks else begin + patience
            self.take_one(max(0.0, min(until - now, 1.0)))

    def is_enough(self, hosts: Hosts) -> bool:
        num_live = len(workers_of(self._peers.taking_part()))
        return num_live > 0 and len(workers_of(hosts)) >= self._deadline.least(num_live)

    def lacking(self, workers: Collection[int]) -> str:
        """Which workers an iteration lacks, for users; empty if none. See `ServerPart`."""
        path, lacking = self._part.path, self._part.lacking(workers)
        return lacking if lacking or path is None else path.lacking(self._peers, workers)

    # Waiting for all answers to a question.

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
        checks = AnswerChecks(
            self._screenings,
            self._peers,
            self._part.device,
            form=form or self._part.forms[0],
            forms=forms or {},
            weights=weights or {},
            read=read,
        )
        received = self._engine.transport.traffic.received
        with self._engine.span("wait") as waiting:
            bytes_before = received.total()
            self._await_answers(iteration, asked, checks)
            checks.look_back()
            self._engine.handle_losses()
            if not again:
                self._peers.attendance.answered(checks.answers.losses)
            waiting.num_bytes = received.total() - bytes_before
        return checks.answers

    def _await_answers(self, iteration: int, asked: Hosts, checks: AnswerChecks) -> None:
        """Puts answers through the checks until all hosts have answered or the deadline is over."""
        begin = time.monotonic()
        limit, patience = self._deadline.limit_seconds(), self._deadline.least_patience_seconds
        while missing := [host for host in asked if self._peers.num_owed(host, iteration)]:
            waited = time.monotonic() - begin
            if waited >= patience:  # only now, as the median takes a while to compute
                patience = self._deadline.patience_seconds()
            if waited >= patience:
                self._give_up_on(missing, patience)
            elif waited >= limit and self._may_go_on(checks.answers, asked):
                live = self._peers.hosts()
                late_workers = [n for host in missing for n in asked[host] if n in live[host]]
                self._peers.attendance.late(iteration, late_workers)
                break
            else:
                until = min(patience, limit if waited < limit else inf)
                answer = self._next(until - waited, iteration)
                if answer is None:
                    continue
                if answer.message.iteration == iteration and answer.host in asked:
                    self._take_in(answer, checks)
                    self._deadline.times.append(time.monotonic() - begin)
                else:  # an answer to an earlier question, or to one that the server gave up
                    self._peers.attendance.back(answer.workers)

    def _take_in(self, answer: HostAnswer, checks: AnswerChecks) -> None:
        checks.take_in(answer)
        self._engine.handle_losses()  # a strike may have shut a worker out

    def _may_go_on(self, answers: Answers, asked: Hosts) -> bool:
        """Whether enough workers have answered, and among them all indispensable ones."""
        live, free, owing = self._peers.taking_part(), self._peers.free(), self._peers.busy()
        counted = [host for host in live if host in answers.hosts or host not in free]
        least = sum(len(set(asked[host]) & set(live[host])) for host in counted if host in asked)
        if self._part.counts_busy:
            least += sum(len(owing.get(host, ())) for host in counted if host not in asked)
        enough = len(answers.losses) >= self._deadline.least(least)
        return enough and not self.lacking(answers.losses)

    def _give_up_on(self, hosts: Iterable[int], patience_seconds: float) -> None:
        """Ends the links to hosts that have owed an answer for too long."""
        for host in hosts:
            self._peers.give_up_on(host, patience_seconds)
        self._engine.handle_losses()

    # Waiting for the next answer.

    @override
    def next_answer(self, iteration: int, weights: Mapping[int, float] | None = None) -> Answers:
        # Waits for the first answers together: only together they show which norm is usual, and an
        # applied answer cannot be taken back.
        if not self._has_first:
            self._has_first = True
            return self.collect(iteration, self._peers.busy(), weights)
        form, device = self._part.forms[0], self._part.device
        checks = AnswerChecks(
            self._screenings, self._peers, device, form=form, forms={}, weights=weights or {}
        )
        with self._engine.span("wait") as waiting:
            answer = self._next(self._seconds_left())
            if answer is not None:
                if (since := self._owing_since.pop(answer.host, None)) is not None:
                    self._deadline.times.append(time.monotonic() - since)
                self._take_in(answer, checks)
                checks.cut()
                self._peers.attendance.answered(checks.answers.losses)
                waiting.num_bytes = answer.num_bytes
        return checks.answers

    def _seconds_left(self) -> float:
        """How long to wait for the next event; gives up hosts that have taken too long."""
        now, patience = time.monotonic(), self._deadline.least_patience_seconds
        self._owing_since = {host: self._owing_since.get(host, now) for host in self._peers.busy()}
        first = min(self._owing_since.values(), default=now)
        if first + patience <= now:  # only now, as the median takes a while to compute
            patience = self._deadline.patience_seconds()
        silent = [host for host, since in self._owing_since.items() if since + patience <= now]
        self._give_up_on(silent, patience)
        return 0.0 if silent else max(0.0, first + patience - now)
