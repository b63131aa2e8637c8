"""What can be used of the answers that come, whichever way the server waits for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mdgan.engine.answers import AnswerForm, Answers, of_kind, read_answers
from mdgan.engine.server.hosts import HostAnswer
from mdgan.engine.server.peers import Peers
from mdgan.engine.server.screening import Screening
from mdgan.engine.sum_messages import NUM_LOSSES
from mdgan.messages import Message


class Intake:
    """Accepts what can be used of hosts' answers, and refuses the rest.

    Args:
        screenings: say which answers cannot be used, to each kind of question; the first is for
            questions of which no kind is said.
        peers: count refusals, and shut workers out.
        device: the one that answers are moved to.
    """

    def __init__(
        self,
        screenings: Sequence[Screening],
        peers: Peers,
        device: torch.device,
    ) -> None:
        self._screenings = {screening.form.kind: screening for screening in screenings}
        self._first = self._form = screenings[0].form
        self._forms: Mapping[int, AnswerForm] = {}
        self._read: Callable[[Message], Any] | None = None
        self._peers = peers
        self._device = device

    def begin(
        self,
        form: AnswerForm | None = None,
        forms: Mapping[int, AnswerForm] | None = None,
        read: Callable[[Message], Any] | None = None,
    ) -> None:
        """Answers to another question follow.

        Args:
            form: how hosts answer it; the first of the algorithm's forms if not given.
            forms: how each worker does, if not all alike.
            read: reads an answer of which the server sees the sum alone; raises ValueError if it is
                malformed. None if it sees every answer.
        """
        self._read = read
        self._form, self._forms = form or self._first, forms or {}

    def take_in(
        self, answer: HostAnswer, answers: Answers, weights: Mapping[int, float] | None = None
    ) -> None:
        """Accepts what can be used of one host's answer.

        Args:
            answer: from the host.
            answers: those that came before; is added to.
            weights: what hosts multiply answers by before they add them up; 1 if not given.
        """
        answers.hosts.add(answer.host)
        if self._read is not None:
            self._take_in_masked(answer, answers, self._read)
            return
        by_kind: dict[str, set[int]] = {}
        for worker in answer.workers:
            by_kind.setdefault(self._form_of(worker).kind, set()).add(worker)
        for kind, workers in by_kind.items():
            message, screening = of_kind(answer.message, kind), self._screenings[kind]
            given = read_answers(message, screening.form, self._forms)
            self._take_in_form(given, workers, screening, answers, weights or {})

    def look_back(self, answers: Answers) -> None:
        """All answers to a question are in: refuses those that were taken on trust.

        Args:
            answers: all of them; those that cannot be used after all are dropped.
        """
        forms = self._forms or {0: self._form}
        for kind in {form.kind: None for form in forms.values()}:
            screening = self._screenings[kind]
            for worker, reason in screening.look_back().items():
                self._refuse(worker, reason, answers)

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
                    self._refuse(worker, reason, answers)
        for worker in sorted(alone):
            self._judge(worker, given, screening, answers)

    def _take_in_masked(
        self, answer: HostAnswer, answers: Answers, read: Callable[[Message], Any]
    ) -> None:
        """Keeps masked sums until those of all hosts are there; only their form can be judged."""
        try:
            answers.masked[answer.host] = read(answer.message)
        except ValueError as error:
            screening = self._screenings[self._form.kind]
            for worker in answer.workers:
                screening.conduct.refuse(worker)
                self._refuse(worker, str(error), answers)
        else:
            answers.losses.update(dict.fromkeys(answer.workers, torch.zeros(NUM_LOSSES)))

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
            self._refuse(worker, reason, answers)
            return
        answers.singles[worker] = answer.to(self._device)
        answers.losses[worker] = given.losses[worker]
        for name, told in beside.items():
            answers.beside.setdefault(name, {})[worker] = told.to(self._device)

    def _form_of(self, worker: int) -> AnswerForm:
        """How a worker answers the present question."""
        return self._forms.get(worker, self._form)

    def _refuse(self, worker: int, reason: str, answers: Answers) -> None:
        """A worker's answer cannot be used; it has one strike more."""
        answers.drop(worker)
        self._peers.refused(worker, reason)
