"""Refuses answers that no aggregation can use, and cuts those that are far longer than usual.

What is broken, of a wrong shape, or absurdly long is refused. What is far longer than usual is cut,
so that none decides a step alone.

This stage is the server's alone. `AnswerChecks` takes in what each host has sent, whichever way the
server waits for it, and asks the `Screening` of each kind of answer.

The workers vote on which norm is usual, but not those that came later: any host may bring these. A
worker's vote is the largest norm that it ever claimed, and the usual norm is the median vote: a
minority cannot move it beyond what honest workers claim, however often or early it answers. It is
the largest, because gradients may vanish for a while (a discriminator that is sure of itself), and
must not look absurd when they come back. What was absurd is no vote of a worker that is excused.

In the first iteration no worker has voted yet. If the first answers decided what is usual, a liar
need only be quick. So the server accepts these norms for now and judges them when all answers are
in: `look_back`.

For cutting, the usual norm is the median of those of an iteration, so fewer than half of the
workers cannot move it, nor can the order in which answers come. Where they come one by one, it is
the median of the newest of each worker. An answer that is not longer stays as it is, bit for bit.
On digits no honest answer was more than 2.6 times as long as usual: with iid and sorted shards,
exchanges and means, batches of 10 and 64.
"""

import bisect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.server.engine import AllWorkersLost
from mdgan.engine.server.hosts import HostAnswer, Strikes
from mdgan.engine.server.peers import Peers
from mdgan.engine.stages.contract import of_kind, read_answers
from mdgan.engine.stages.mask import NUM_LOSSES
from mdgan.messages import Message

ABSURD_FACTOR = 1000.0
"""How many times the usual norm is refused. Far above what honest workers differ by: on digits, ten
workers, no norm was more than twice the usual one, also with sorted shards and with other losses.
Far below what ruins Adam: one gradient 10⁶ times too large keeps its second moment, and so every
step, wrong for thousands of iterations. Norms between these are for `--aggregation`."""

_ROUNDED = 1.001
"""By how much rounding may lengthen an answer that is as long as it may be, at the very most."""
LEAST_VOTES = 3  # with fewer votes the server cannot tell which norm is usual


def limit_of(norms: Collection[float], factor: float) -> float:
    """How long an answer may be; infinite where too little is known."""
    return factor * median(norms) if factor and len(norms) >= LEAST_VOTES else math.inf


@dataclass
class Screening:
    """Refuses unusable answers, and counts strikes; all workers vote if no voters are given."""

    form: AnswerForm
    conduct: Strikes
    voters: Collection[int] | None = None
    # By worker, of its newest answer that could be used.
    norms: dict[int, float] = field(default_factory=dict, init=False)
    _largest: dict[int, float] = field(default_factory=dict, init=False)
    _votes: list[float] = field(default_factory=list, init=False)  # of `_largest`, sorted
    _on_trust: dict[int, float] = field(default_factory=dict, init=False)
    _usual_is_known: bool = field(default=False, init=False)

    def refuse(
        self,
        worker: int,
        answer: Tensor,
        beside: Mapping[str, Tensor] | None = None,
        form: AnswerForm | None = None,
    ) -> str | None:
        """Judges one worker's answer; a refusal, of which it says why, is a strike.

        Args:
            form: how it should look, if that differs by worker.
        """
        for name, tensor in (beside or {}).items():
            reason = _of_another_kind(tensor, (form or self.form).beside[name], f"{name} of ")
            if reason is None and not tensor.isfinite().all():
                reason = f"NaN or Inf among its {name}"
            if reason is not None:
                return self._refused({worker: reason})[worker]
        return self.refuse_together([worker], answer, form).get(worker)

    def refuse_together(
        self, workers: Sequence[int], answer: Tensor, form: AnswerForm | None = None
    ) -> dict[int, str]:
        """Judges one answer for several workers; says why it is refused, a strike for each."""
        if not self._on_trust.keys().isdisjoint(workers):  # a second answer: all first ones are in
            self._settle()
        reason, norm = _of_another_kind(answer, (form or self.form).shape), 0.0
        if reason is None:
            norm = float(torch.linalg.vector_norm(answer))
            if not math.isfinite(norm):
                reason = "a norm beyond float32" if answer.isfinite().all() else "NaN or Inf"
        reasons = {worker: reason or self._judge(worker, norm) for worker in workers}
        for worker in (worker for worker in workers if reasons[worker] is None):
            self.conduct.accept(worker)
            self.norms[worker] = norm
        return self._refused(reasons)

    def cut(self, answers: Answers, live: Collection[int]) -> list[int]:
        """Shortens answers that are far longer than usual; the workers whose answers were.

        The norm of a sum is that of the mean of its workers' answers.
        """
        now = {n: norm for n, norm in self.norms.items() if n in answers.losses}
        usual = now if self._votes_of(now) else {n: self.norms[n] for n in live if n in self.norms}
        limit = limit_of(self._votes_of(usual), self.form.most_usual)
        factors = {n: limit / norm for n, norm in now.items() if norm > limit}
        for n in answers.singles.keys() & factors.keys():
            answers.singles[n] = answers.singles[n] * factors[n]
        answers.sums = [
            part._replace(total=part.total * factors[n]) if n in factors else part
            for part in answers.sums
            for n in part.workers[:1]
        ]
        return sorted(factors)

    def _votes_of(self, norms: Mapping[int, float]) -> list[float]:
        """Those of workers that have a vote; none if they are too few."""
        voters = norms if self.voters is None else self.voters
        votes = [norm for n, norm in norms.items() if n in voters]
        return votes if len(votes) >= LEAST_VOTES else []

    def look_back(self) -> dict[int, str]:
        """Judges what was taken on trust, once an iteration's answers are all in.

        Says by worker why its answer cannot be used after all, which is a strike.
        """
        trusted = self._settle()
        reasons = {worker: self._judge(worker, norm) for worker, norm in trusted.items()}
        return self._refused(reasons)

    def _judge(self, worker: int, norm: float) -> str | None:
        if (most := self.form.most_norm) is not None:
            return None if norm <= _ROUNDED * most else f"norm {norm:.2g}, above {most:g}"
        if not (self._usual_is_known and worker in self.conduct.excused):
            self._vote(worker, norm)
        if not self._usual_is_known:
            self._on_trust[worker] = norm
            return None
        usual = self._votes[len(self._votes) // 2]
        if usual == 0 or norm <= ABSURD_FACTOR * usual:
            self._vote(worker, norm)
            return None
        return f"norm {norm:.2g}, {norm / usual:.2g} times the usual"

    def _settle(self) -> dict[int, float]:
        """Ends the time of trust if enough have voted; the norms that were taken in it."""
        trusted, self._on_trust = self._on_trust, {}
        self._usual_is_known = len(self._votes) >= LEAST_VOTES
        return trusted if self._usual_is_known else {}

    def _vote(self, worker: int, norm: float) -> None:
        votes = self.voters is None or worker in self.voters
        if votes and norm > self._largest.get(worker, -1.0):
            self._withdraw(worker)
            self._largest[worker] = norm
            bisect.insort(self._votes, norm)

    def _withdraw(self, worker: int) -> None:
        if worker in self._largest:
            self._votes.pop(bisect.bisect_left(self._votes, self._largest.pop(worker)))

    def _refused(self, reasons: Mapping[int, str | None]) -> dict[int, str]:
        """Counts a strike for each worker whose answer cannot be used; says why it cannot."""
        refused = {worker: reason for worker, reason in reasons.items() if reason is not None}
        for worker in refused:
            self.conduct.refuse(worker)
            if self.conduct.is_out(worker):
                self._withdraw(worker)
        return refused


def _of_another_kind(tensor: Tensor, shape: tuple[int, ...], what: str = "") -> str | None:
    if tensor.dtype != torch.float32:
        return f"{what}{tensor.dtype}, not {torch.float32}"
    return None if tensor.shape == shape else f"{what}shape {list(tensor.shape)}, not {list(shape)}"


@dataclass
class AnswerChecks:
    """Accepts what can be used of hosts' answers to one question, and refuses the rest.

    Attributes:
        screenings: one for each kind of answer.
        form, forms, weights: see `AnswerCollector.collect`.
        read: reads an answer of which the server sees the sum alone; raises ValueError if it is
            malformed. None if it sees every answer.
    """

    screenings: Mapping[str, Screening]
    peers: Peers
    device: torch.device
    form: AnswerForm
    forms: Mapping[int, AnswerForm]
    weights: Mapping[int, float]
    read: Callable[[Message], Any] | None = None
    answers: Answers = field(default_factory=Answers)

    def take_in(self, answer: HostAnswer) -> None:
        """Adds what can be used of one host's answer."""
        answers = self.answers
        answers.hosts.add(answer.host)
        if self.read is not None:
            self._take_in_masked(answer, self.read)
            return
        by_kind: dict[str, set[int]] = {}
        for worker in answer.workers:
            by_kind.setdefault(self.forms.get(worker, self.form).kind, set()).add(worker)
        for kind, alone in by_kind.items():
            screening = self.screenings[kind]
            form = self.form if kind == self.form.kind else screening.form
            given = read_answers(of_kind(answer.message, kind), form, self.forms)
            for part in [part for part in given.sums if set(part.workers) <= alone]:
                alone -= set(part.workers)
                weight = sum(self.weights.get(n, 1.0) for n in part.workers)
                answers.sums.append(part._replace(total=part.total.to(self.device)))
                answers.losses.update((n, given.losses[n]) for n in part.workers)
                mean = (part.total / weight).float()
                self._drop(screening.refuse_together(part.workers, mean, form))
            for worker in sorted(alone):
                self._take_in_single(worker, given, screening)

    def look_back(self) -> None:
        """All answers to the question are in: drops those that were taken on trust in vain."""
        forms = self.forms or {0: self.form}
        for kind in {form.kind: None for form in forms.values()}:
            self._drop(self.screenings[kind].look_back())
        self.cut()

    def cut(self) -> None:
        """Shortens answers that are far longer than usual; only where answers have one form."""
        if self.form.most_usual and not self.forms:
            screening = self.screenings[self.form.kind]
            self.peers.attendance.cut(screening.cut(self.answers, self.peers.workers()))

    def _take_in_masked(self, answer: HostAnswer, read: Callable[[Message], Any]) -> None:
        """Keeps masked sums until those of all hosts are there; only their form can be judged."""
        try:
            self.answers.masked[answer.host] = read(answer.message)
        except ValueError as error:
            for worker in answer.workers:
                self.screenings[self.form.kind].conduct.refuse(worker)
                self._drop({worker: str(error)})
        else:
            self.answers.losses.update(dict.fromkeys(answer.workers, torch.zeros(NUM_LOSSES)))

    def _take_in_single(self, worker: int, given: Answers, screening: Screening) -> None:
        form, nothing = self.forms.get(worker, self.form), torch.empty(0)
        answer = given.singles.get(worker, nothing)
        beside = {name: given.beside.get(name, {}).get(worker, nothing) for name in form.beside}
        reason = screening.refuse(worker, answer, beside, form=form)
        if reason is not None:
            self._drop({worker: reason}, given.losses)
            return
        self.answers.singles[worker] = answer.to(self.device)
        self.answers.losses[worker] = given.losses[worker]
        for name, tensor in beside.items():
            self.answers.beside.setdefault(name, {})[worker] = tensor.to(self.device)

    def _drop(self, refused: Mapping[int, str], losses: Mapping[int, Tensor] | None = None) -> None:
        """Answers cannot be used: a strike for each worker, or the end if our own has NaN."""
        for worker, reason in refused.items():
            is_nan = bool((losses or self.answers.losses).get(worker, torch.empty(0)).isnan().any())
            if is_nan and self.peers.are_ours and worker in self.peers.admission.expected:
                said = "the discriminator returns NaN, or is given NaN by the generator"
                at = f"rank {worker}: losses are NaN at iteration {self.peers.iteration}"
                raise AllWorkersLost(f"{at}: {said}; look at divisions, roots and learning rates")
            self.answers.drop(worker)
            self.peers.refused(worker, reason)
