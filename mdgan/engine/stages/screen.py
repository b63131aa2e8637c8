"""Refuses answers that no aggregation can use, and cuts those that are far longer than usual.

The server refuses an answer that is broken, of a wrong shape, or absurdly long. It cuts an answer
that is far longer than usual, so that no worker decides a step alone.

Only the server has this stage. `AnswerChecks` takes in the answers of each host, and asks the
`Screening` of each kind of answer.

The workers of the start vote on the usual norm; later workers do not, since a host may bring any
number of them. A worker's vote is the largest norm that it ever sent, and the usual norm is the
median vote: a minority cannot move it beyond the norms of honest workers, however often or early it
answers. It is the largest norm because gradients may vanish for a while (a discriminator that is
sure of itself), and must not look absurd when they come back. An absurd norm of an excused worker
is no vote.

In the first iteration no worker has voted yet. If the first answers decided what is usual, a liar
need only be quick. So the server accepts these norms on trust, and judges them in `look_back`, when
all answers have arrived.

For cutting, the usual norm is the median of an iteration's norms: fewer than half of the workers
cannot move it, nor can the order of answers. Where answers come one by one, it is the median of
each worker's newest norm. An answer that is not longer stays as it is, bit for bit. On digits no
honest answer was more than 2.6 times as long as usual: with iid and sorted shards, exchanges and
means, batches of 10 and 64.
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
"""The server refuses a norm above this many times the usual one. Honest workers differ far less: on
digits, ten workers, no norm was more than twice the usual one, also with sorted shards and other
losses. Adam is ruined by far more: one gradient 10⁶ times too large keeps its second moment, and so
every step, wrong for thousands of iterations. `--aggregation` is for norms between these."""

_ROUNDED = 1.001
"""The most by which rounding may lengthen an answer of the largest norm allowed."""
LEAST_VOTES = 3  # with fewer votes the server cannot tell which norm is usual


def limit_of(norms: Collection[float], factor: float) -> float:
    """The norm above which answers are cut: `factor` times the median; infinite for few norms."""
    return factor * median(norms) if factor and len(norms) >= LEAST_VOTES else math.inf


@dataclass
class Screening:
    """Refuses unusable answers of one kind, and counts strikes; without `voters` all vote."""

    form: AnswerForm
    conduct: Strikes
    voters: Collection[int] | None = None
    # By worker, the norm of its newest usable answer.
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
        """Judges one worker's answer; a refusal is a strike, and its reason is returned.

        Args:
            form: of this answer, if forms differ by worker.
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
        """Judges the mean answer of several workers; a refusal is a strike for each of them."""
        if not self._on_trust.keys().isdisjoint(workers):  # a second answer: all have given a first
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
        """Shortens answers that are far longer than usual; returns their workers.

        The norm of a sum is that of the mean answer of its workers.
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
        """The norms of workers that have a vote; empty if these are too few."""
        voters = norms if self.voters is None else self.voters
        votes = [norm for n, norm in norms.items() if n in voters]
        return votes if len(votes) >= LEAST_VOTES else []

    def look_back(self) -> dict[int, str]:
        """Judges answers that were accepted on trust, when all of an iteration have arrived.

        Returns, by worker, why its answer cannot be used after all, which is a strike.
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
        """Ends the time of trust if enough workers have voted; returns the norms accepted in it."""
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
        """Counts a strike for each worker with a reason; returns these workers and reasons."""
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
    """Accepts the usable answers of hosts to one question, and refuses the others.

    Attributes:
        screenings: by kind of answer.
        form, forms, weights: see `AnswerCollector.collect`.
        read: reads a masked answer, and raises ValueError if it is malformed; None where the server
            sees every answer.
    """

    screenings: Mapping[str, Screening]
    peers: Peers
    device: torch.device
    form: AnswerForm
    forms: Mapping[int, AnswerForm]
    weights: Mapping[int, float]
    read: Callable[[Message], Any] | None = None
    answers: Answers = field(default_factory=Answers)
    nan_workers: list[int] = field(default_factory=list)  # on this machine, with NaN losses

    def take_in(self, answer: HostAnswer) -> None:
        """Adds the usable answers of one host's workers."""
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
        """Drops answers that were accepted on trust and are absurd, when all have arrived."""
        forms = self.forms or {0: self.form}
        for kind in {form.kind: None for form in forms.values()}:
            self._drop(self.screenings[kind].look_back())
        if self.nan_workers and not self.answers.losses:
            self._blame_models()
        self.cut()

    def cut(self) -> None:
        """Shortens answers that are far longer than usual; only where answers have one form."""
        if self.form.most_usual and not self.forms:
            screening = self.screenings[self.form.kind]
            self.peers.attendance.cut(screening.cut(self.answers, self.peers.workers()))

    def _take_in_masked(self, answer: HostAnswer, read: Callable[[Message], Any]) -> None:
        """Keeps a host's masked addends for `ServerMask`; only their form can be judged."""
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
        """Answers cannot be used: a strike for each worker."""
        for worker, reason in refused.items():
            is_nan = bool((losses or self.answers.losses).get(worker, torch.empty(0)).isnan().any())
            if is_nan and self.peers.are_ours and worker in self.peers.admission.expected:
                self.nan_workers.append(worker)
            self.answers.drop(worker)
            self.peers.refused(worker, reason)

    def _blame_models(self) -> None:
        """Ends a run whose workers, all on this machine, have no usable answer because of NaN."""
        at = f"rank {self.nan_workers[0]}: losses are NaN at iteration {self.peers.iteration}"
        said = "the discriminator returns NaN, or is given NaN by the generator"
        raise AllWorkersLost(f"{at}: {said}; look at divisions, roots and learning rates")
