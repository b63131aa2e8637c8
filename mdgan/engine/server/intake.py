"""What can be used of the answers that come, whichever way the server waits for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mdgan.engine.answers import AnswerForm, Answers, of_kind, read_answers
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.desk import Desk
from mdgan.engine.server.inbox import HostAnswer
from mdgan.engine.server.membership import Membership
from mdgan.engine.server.screening import Screening
from mdgan.engine.stages.mask import NUM_LOSSES
from mdgan.messages import Message


class Intake:
    """Accepts what can be used of hosts' answers, and refuses the rest.

    Args:
        screenings: say which answers cannot be used, to each kind of question; the first is for
            questions of which no kind is said.
        members: the hosts and workers that take part.
        desk: is told of workers that are shut out.
        attendance: counts refusals.
        device: the one that answers are moved to.
    """

    def __init__(
        self,
        screenings: Sequence[Screening],
        members: Membership,
        desk: Desk,
        attendance: Attendance,
        device: torch.device,
    ) -> None:
        self._screenings = {screening.form.kind: screening for screening in screenings}
        self._first = self._form = screenings[0].form
        self._forms: Mapping[int, AnswerForm] = {}
        self._read: Callable[[Message], Any] | None = None
        self._members = members
        self._desk = desk
        self._attendance = attendance
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
            by_kind.setdefault(self._forms.get(worker, self._form).kind, set()).add(worker)
        for kind, alone in by_kind.items():
            screening = self._screenings[kind]
            given = read_answers(of_kind(answer.message, kind), screening.form, self._forms)
            for part in [part for part in given.sums if set(part.workers) <= alone]:
                alone -= set(part.workers)
                weight = sum((weights or {}).get(n, 1.0) for n in part.workers)
                answers.sums.append(part._replace(total=part.total.to(self._device)))
                answers.losses.update((n, given.losses[n]) for n in part.workers)
                refused = screening.refuse_together(part.workers, (part.total / weight).float())
                for worker, reason in refused.items():
                    self._refuse(worker, reason, screening, answers)
            for worker in sorted(alone):
                self._take_in_single(worker, given, screening, answers)

    def look_back(self, answers: Answers) -> None:
        """All answers to a question are in: drops those that were taken on trust in vain."""
        forms = self._forms or {0: self._form}
        for kind in {form.kind: None for form in forms.values()}:
            screening = self._screenings[kind]
            for worker, reason in screening.look_back().items():
                self._refuse(worker, reason, screening, answers)

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
                self._refuse(worker, str(error), screening, answers)
        else:
            answers.losses.update(dict.fromkeys(answer.workers, torch.zeros(NUM_LOSSES)))

    def _take_in_single(
        self, worker: int, given: Answers, screening: Screening, answers: Answers
    ) -> None:
        form, nothing = self._forms.get(worker, self._form), torch.empty(0)
        answer = given.singles.get(worker, nothing)
        beside = {name: given.beside.get(name, {}).get(worker, nothing) for name in form.beside}
        reason = screening.refuse(worker, answer, beside, form)
        if reason is not None:
            self._refuse(worker, reason, screening, answers)
            return
        answers.singles[worker] = answer.to(self._device)
        answers.losses[worker] = given.losses[worker]
        for name, tensor in beside.items():
            answers.beside.setdefault(name, {})[worker] = tensor.to(self._device)

    def _refuse(self, worker: int, reason: str, screening: Screening, answers: Answers) -> None:
        """A worker's answer cannot be used; it has one strike more."""
        answers.drop(worker)
        conduct = screening.conduct
        strikes = conduct.strikes_of(worker)
        self._attendance.refused(self._members.iteration, worker, reason, strikes)
        if conduct.is_out(worker):
            self._desk.shut_out(worker, f"{strikes} unusable answers, the last: {reason}")
