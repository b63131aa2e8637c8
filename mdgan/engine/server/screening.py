"""Answers that no aggregation can use are refused before it: broken, of a wrong shape, absurd.

Which norm is usual is a vote. Every worker has one, the largest norm that it ever claimed, and the
usual norm is the median vote: a minority cannot move it beyond what honest workers claim, however
often or early it answers. The largest, because gradients may vanish for a while (a discriminator
that is sure of itself), and those that come back must not look absurd beside them.

In the first iteration nobody has voted yet. Norms are then taken on trust, so that who answers
first cannot decide what is usual, and judged when all answers are in: `look_back`.
"""

import bisect
import math
from collections.abc import Sequence

import torch
from torch import Tensor

ABSURD_FACTOR = 1000.0
"""How many times the usual norm is refused. Far above what honest workers differ by: on digits, ten
workers, no norm was more than twice the usual one, also with sorted shards and with other losses.
Far below what ruins Adam: one gradient 10⁶ times too large keeps its second moment, and so every
step, wrong for thousands of iterations. What lies between is for `--aggregation` to outvote."""

LEAST_VOTES = 3
"""Below it nobody can tell whose norm is the usual one, so none is refused."""


class Screening:
    """Refuses unusable feedback, and counts how often each worker sent any.

    Args:
        shape: of an answer: (b, C, H, W) for feedback.
        strikes: refusals after which a worker is out.
    """

    def __init__(self, shape: tuple[int, ...], strikes: int) -> None:
        self._shape = shape
        self._limit = strikes
        self._strikes: dict[int, int] = {}
        self._largest: dict[int, float] = {}
        self._votes: list[float] = []  # the values of `_largest`, sorted
        self._on_trust: dict[int, float] = {}
        self._usual_is_known = False

    def refuse(self, worker: int, feedback: Tensor, verdicts: Tensor | None = None) -> str | None:
        """Judges one answer; a refusal is a strike.

        Args:
            worker: who sent it.
            feedback: what should be F_n, float32 [b, C, H, W].
            verdicts: what should be D_n(X^(g)), float32 [b]; None where nobody asks for them.

        Returns:
            Why it cannot be used, in a few words; None if it can.
        """
        reason = None if verdicts is None else self._unusable_verdicts(verdicts)
        if reason is not None:
            self._strike(worker)
            return reason
        return self.refuse_together([worker], feedback).get(worker)

    def refuse_together(self, workers: Sequence[int], feedback: Tensor) -> dict[int, str]:
        """Judges one answer for several workers; a refusal is a strike for each.

        Args:
            workers: who sent it.
            feedback: what should be F_n, or the mean of theirs, float32 [b, C, H, W].

        Returns:
            Why it cannot be used, by worker; empty if it can.
        """
        if not self._on_trust.keys().isdisjoint(workers):  # a second answer: all first ones are in
            self._settle()
        reason, norm = self._unusable(feedback), 0.0
        if reason is None:
            norm = float(torch.linalg.vector_norm(feedback))
            if not math.isfinite(norm):
                reason = "a norm beyond float32" if feedback.isfinite().all() else "NaN or Inf"
        reasons = {worker: reason or self._judge(worker, norm) for worker in workers}
        refused = {worker: reason for worker, reason in reasons.items() if reason is not None}
        for worker in refused:
            self._strike(worker)
        return refused

    def look_back(self) -> dict[int, str]:
        """Judges what was taken on trust; to be called when an iteration's answers are all in.

        Returns:
            By worker, why its last answer cannot be used after all; each is a strike. Empty from
            the second call on.
        """
        trusted = self._settle()
        reasons = {worker: self._judge(worker, norm) for worker, norm in trusted.items()}
        absurd = {worker: reason for worker, reason in reasons.items() if reason is not None}
        for worker in absurd:
            self._strike(worker)
        return absurd

    def strikes_of(self, worker: int) -> int:
        """How many answers of a worker were refused."""
        return self._strikes.get(worker, 0)

    def is_out(self, worker: int) -> bool:
        """Whether a worker has used up its strikes."""
        return self.strikes_of(worker) >= self._limit

    def _unusable(self, feedback: Tensor) -> str | None:
        if feedback.dtype != torch.float32:
            return f"{feedback.dtype}, not {torch.float32}"
        if feedback.shape != self._shape:
            return f"shape {list(feedback.shape)}, not {list(self._shape)}"
        return None

    def _unusable_verdicts(self, verdicts: Tensor) -> str | None:
        if verdicts.dtype != torch.float32:
            return f"verdicts of {verdicts.dtype}, not {torch.float32}"
        if verdicts.shape != self._shape[:1]:
            return f"verdicts of shape {list(verdicts.shape)}, not {list(self._shape[:1])}"
        return None if verdicts.isfinite().all() else "NaN or Inf among its verdicts"

    def _judge(self, worker: int, norm: float) -> str | None:
        self._vote(worker, norm)
        if not self._usual_is_known:
            self._on_trust[worker] = norm
            return None
        usual = self._votes[len(self._votes) // 2]
        if usual == 0 or norm <= ABSURD_FACTOR * usual:
            return None
        return f"norm {norm:.2g}, {norm / usual:.2g} times the usual"

    def _settle(self) -> dict[int, float]:
        """Ends the time of trust if enough have voted; the norms that were taken in it."""
        trusted, self._on_trust = self._on_trust, {}
        self._usual_is_known = len(self._votes) >= LEAST_VOTES
        return trusted if self._usual_is_known else {}

    def _vote(self, worker: int, norm: float) -> None:
        if norm > self._largest.get(worker, -1.0):
            self._withdraw(worker)
            self._largest[worker] = norm
            bisect.insort(self._votes, norm)

    def _withdraw(self, worker: int) -> None:
        if worker in self._largest:
            self._votes.pop(bisect.bisect_left(self._votes, self._largest.pop(worker)))

    def _strike(self, worker: int) -> None:
        self._strikes[worker] = self.strikes_of(worker) + 1
        if self.is_out(worker):
            self._withdraw(worker)
