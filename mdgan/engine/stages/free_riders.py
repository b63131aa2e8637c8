"""Finds free riders: workers whose answers ignore the batch, or change less than by learning.

The server computes two figures of every answer, and compares them with those of other workers.

Heed: do similar samples get similar answers? It is the correlation, over all pairs of samples of a
batch, of the cosine of two samples with the cosine of their two answers, all without their mean
over the batch. A worker that answers without looking at samples has 0 on average.

Motion: how far a worker's mean answer has moved since an earlier iteration, beside how far it would
move because samples differ: ln(‖F̄(i) − F̄(j)‖² / (s²(i) + s²(j))), where s² is the variance of a
mean over a batch. j is the last iteration before a swap, in which another worker had the
discriminator. The server takes the smaller motion of two: from that worker's answer, and from the
worker's own. So a worker gains nothing by ignoring swaps. The answers of a frozen discriminator, or
of a formula, move only as far as the generator makes them. Ideas: WEF-Defense (Chen et al. 2022),
by how weights evolve, and STD-DAGMM (Fraboni et al. 2021), by the spread of an update.

A worker that gives a discriminator away unchanged did not train it, and a worker whose
discriminators others refuse has spoilt them; see `Handovers`. The report of one host counts as much
as one discriminator.

For each figure the server counts evidence: how much likelier a worker's figures are if it rides for
free than if it is like the others, as a logarithm, and never below 0 (CUSUM, Page 1954). The usual
figure is the median over all workers: fewer than half of them cannot move it. A discriminator that
a worker took may be why its figures are low. So the server counts evidence apart for each worker
that a discriminator came from, and omits the largest part that came from one other worker.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.engine.stages.handovers import Handovers
from mdgan.engine.stages.suspect_settings import GUILTY, LEAST_SAMPLES, LEAST_WORKERS

_LONGEST = 16  # the most iterations between two looks at motion
_REST = 8
"""Where swaps come more often, the server waits this many iterations after each look at motion,
since a look takes time."""
_EAGER = 200
_OFTEN, _SELDOM = 3, 4
"""To save time the server computes the heed in every third of the first `_EAGER` iterations, and
then in every fourth."""
_MEMORY = 25  # iterations by which the server knows the usual figure, and its deviation
_MOST_OF_ONE = 8.0
"""The most evidence from one discriminator against the worker that took it: a quarter of enough."""
_SERVER = 0  # the giver of the copy with which a newcomer begins
_LEAST_DEVIATION = 0.3  # of motions, which are logarithms

_MOST_MOTION = 10.0
_TINY = sys.float_info.min

_Floats = NDArray[np.float64]


class Evidence:
    """Evidence that figures of a worker are below the usual one by `share` of it; 1: about 0."""

    def __init__(self, share: float, least_deviation: float, most_at_once: float) -> None:
        self._share = share
        self._least_variance = least_deviation**2
        self._most_at_once = most_at_once
        self._usual = self._variance = 0.0
        self._num_seen = 0
        # By worker: evidence, by the origin of the discriminator that it then held; the origin of
        # its present discriminator; and how much evidence there was when it took that.
        self._by_origin: defaultdict[int, dict[int, float]] = defaultdict(dict)
        self._origin: dict[int, int] = {}
        self._before: dict[int, float] = {}

    def take(self, figures: Mapping[int, float]) -> None:
        """Takes in one figure of each of `LEAST_WORKERS` workers or more."""
        usual = median(figures.values())
        deviation = 1.4826 * median([abs(figure - usual) for figure in figures.values()])
        self._num_seen += 1
        newest = 1 / min(self._num_seen, _MEMORY)
        self._usual += newest * (usual - self._usual)
        self._variance += newest * (deviation**2 - self._variance)
        gap = self._share * max(0.0, self._usual)
        strength = gap / max(self._variance, self._least_variance)
        for worker, figure in figures.items():
            # The logarithm of the ratio of two normal densities, whose means are `gap` apart.
            ratio = strength * (min(usual - figure, 2 * gap) - gap / 2)
            evidence = max(0.0, self._all(worker) + min(ratio, self._most_at_once))
            most = self._before.get(worker, math.inf) + _MOST_OF_ONE
            self._put(worker, min(evidence, most))

    def moved(self, moves: Mapping[int, int]) -> None:
        """Records a swap, giver → taker; a discriminator with low figures keeps its origin."""
        origins = {
            taker: self._origin.get(giver, giver)
            if self._all(giver) > self._before.get(giver, 0.0)
            else giver
            for giver, taker in moves.items()
        }
        self._origin |= origins
        self._before |= {taker: self._all(taker) for taker in origins}

    def forget(self, worker: int) -> None:
        """Forgets the evidence against a rank, which now belongs to another owner."""
        for by_worker in (self._by_origin, self._origin, self._before):
            by_worker.pop(worker, None)

    def of(self, worker: int) -> float:
        """The evidence against a worker, less the most that came from one other worker."""
        parts = self._by_origin.get(worker, {})
        return self._all(worker) - max((p for n, p in parts.items() if n != worker), default=0.0)

    def _all(self, worker: int) -> float:
        return sum(self._by_origin.get(worker, {}).values())

    def _put(self, worker: int, evidence: float) -> None:
        """Adds an increase to the present origin's part; takes a decrease from all parts alike."""
        parts, before = self._by_origin[worker], self._all(worker)
        if evidence < before:
            parts |= {n: part * evidence / before for n, part in parts.items()}
        else:
            origin = self._origin.get(worker, worker)
            parts[origin] = parts.get(origin, 0.0) + evidence - before


class _Look(NamedTuple):
    """An iteration: the row of each worker; the means of answers, [N, C·H·W]; their variances."""

    rows: Mapping[int, int]
    means: _Floats
    variances: _Floats


class FreeRiders:
    """Scores workers by their answers; draws no random number and changes no answer."""

    def __init__(self, batch_size: int, handovers: Handovers) -> None:
        self._batch_size = batch_size
        self._handovers = handovers
        self._centring = np.eye(batch_size) - 1 / batch_size
        # The places of all pairs of samples in a matrix [b, b] that is laid out row by row.
        rows, columns = np.triu_indices(batch_size, 1)
        self._pairs = rows * batch_size + columns
        # The standard deviation of the correlation of unrelated cosines over all pairs.
        by_chance = 1 / math.sqrt(max(1, len(self._pairs) - 1))
        self._heed = Evidence(1.0, by_chance, 2.0)
        self._motion = Evidence(0.5, _LEAST_DEVIATION, _MOST_OF_ONE)
        self._last: _Look | None = None
        # By worker that has answered in each iteration since `_last`: the row in `_last` of the
        # worker that then held its discriminator.
        self._since: dict[int, int] = {}
        self._num_since, self._num_looks = _LONGEST, 0
        self._known_workers: set[int] = set()
        # By worker, how sure the server is that it rides for free, in standard deviations: evidence
        # h is as strong as a normal variable that lies √(2h) standard deviations off.
        self.scores: dict[int, float] = {}

    def look(
        self,
        generated: Tensor,
        judged: Mapping[int, int],
        feedbacks: Mapping[int, Tensor],
        *,
        swap_follows: bool,
    ) -> None:
        """Looks at answers, F_n by worker, each to the batch that it `judged` of X, [κ, b, …]."""
        if self._batch_size < LEAST_SAMPLES or len(feedbacks) < LEAST_WORKERS:
            self._last, self._since, self._num_since = None, {}, _LONGEST
            may_heed = may_move = False
        else:
            may_heed, may_move = self._looks_due(feedbacks.keys(), swap_follows=swap_follows)
            if may_heed or may_move:
                # In float64, since the squares of large float32 values overflow.
                answers = torch.stack(list(feedbacks.values())).flatten(2).double()
            if may_heed:
                batches = [judged[worker] for worker in feedbacks]
                heeds = self._heeds(generated.flatten(2), answers, batches)
                self._heed.take(dict(zip(feedbacks, heeds, strict=True)))
            if may_move:
                self._look_at_motion(list(feedbacks), answers)
        accused = self._handovers.accused()
        workers = self._known_workers | accused
        if may_heed or may_move or accused or len(self.scores) < len(workers):
            against = {n: max(self._against(n).values()) for n in sorted(workers)}
            self.scores = {n: math.sqrt(2 * evidence) for n, evidence in against.items()}

    def _looks_due(self, workers: Set[int], *, swap_follows: bool) -> tuple[bool, bool]:
        """Whether it is time to compute the heed of these workers, and the motion."""
        if workers != self._known_workers:
            if self._known_workers:  # a newcomer begins with a copy of another's discriminator
                for newcomer in workers - self._known_workers:
                    self._moved({_SERVER: newcomer})
            self._known_workers |= workers
            self._since = {n: row for n, row in self._since.items() if n in workers}
        self._num_since += 1
        self._num_looks += 1
        may_heed = self._num_looks % (_OFTEN if self._num_looks <= _EAGER else _SELDOM) == 0
        may_move = swap_follows or self._num_since >= _LONGEST
        return may_heed, may_move and (self._last is not None or self._num_since >= _REST)

    def swapped(self, moves: Mapping[int, int]) -> None:
        """Records a swap, giver → taker, after the iteration that `look` saw last."""
        self._moved(moves)
        if self._last is not None:
            rows = self._last.rows
            usable = [(g, t) for g, t in moves.items() if g in rows and t in self._since]
            self._since |= {taker: rows[giver] for giver, taker in usable}

    def forget(self, workers: Collection[int]) -> None:
        """Forgets ranks that now belong to other owners; these count as newcomers."""
        for n in workers:
            self._heed.forget(n)
            self._motion.forget(n)
            self.scores.pop(n, None)
        self._known_workers -= set(workers)
        self._since = {n: row for n, row in self._since.items() if n not in workers}
        self._handovers.forget(workers)

    def guilty(self) -> set[int]:
        """The workers whose score is high enough to take them for free riders."""
        return {worker for worker, score in self.scores.items() if score >= GUILTY}

    def why(self, worker: int) -> str:
        """The reason with the most evidence against a worker, in words."""
        against = self._against(worker)
        return max(against, key=against.__getitem__)

    def _moved(self, moves: Mapping[int, int]) -> None:
        self._heed.moved(moves)
        self._motion.moved(moves)

    def _heeds(self, generated: Tensor, answers: Tensor, batches: Sequence[int]) -> list[float]:
        """How far each answer, [N, b, C·H·W], heeds its batch, one of [κ, b, C·H·W]."""
        samples = torch.cat([generated, answers])
        likeness = self._likeness(torch.bmm(samples, samples.mT).cpu().numpy())
        of_batches = likeness[: len(generated)][batches]
        heeds: list[float] = np.einsum("np,np->n", of_batches, likeness[len(generated) :]).tolist()
        return heeds

    def _likeness(self, products: _Floats) -> _Floats:
        """By batch, from products of samples, the cosines of all pairs less their mean."""
        spread = self._centring @ products @ self._centring
        lengths = np.sqrt(spread.diagonal(axis1=1, axis2=2).clip(_TINY))
        spread /= lengths[:, :, None] * lengths[:, None, :]
        pairs = spread.reshape(len(spread), -1).take(self._pairs, axis=1)
        pairs -= pairs.mean(axis=1, keepdims=True)
        pairs /= np.sqrt(np.einsum("np,np->n", pairs, pairs).clip(_TINY))[:, None]
        return pairs

    def _look_at_motion(self, workers: Sequence[int], answers: Tensor) -> None:
        """Compares answers, [N, b, C·H·W], with those of `_last`; then replaces these, or rests."""
        means = answers.mean(dim=1, keepdim=True)
        spread = torch.linalg.vector_norm(answers - means, dim=(1, 2)).cpu().numpy()
        variances = np.square(spread) / (self._batch_size * (self._batch_size - 1))
        row_of = {worker: row for row, worker in enumerate(workers)}
        now = _Look(row_of, means[:, 0].cpu().numpy(), variances)
        then, since = self._last, self._since
        if then is not None and len(since) >= LEAST_WORKERS:
            rows = [now.rows[worker] for worker in since]
            of_takers = _motion(then, [then.rows[worker] for worker in since], now, rows_now=rows)
            of_givers = _motion(then, list(since.values()), now, rows_now=rows)
            figures = np.minimum(of_takers, of_givers).tolist()
            self._motion.take(dict(zip(since, figures, strict=True)))
        if then is not None and self._num_since < _REST:
            self._last, self._since = None, {}
        else:
            self._last, self._since = now, dict(now.rows)
        self._num_since = 0

    def _against(self, worker: int) -> dict[str, float]:
        """The evidence against a worker, by reason."""
        num_witnesses = self._handovers.num_witnesses(worker)
        num_refusals = self._handovers.spoilers.get(worker, 0)
        return {
            "its feedback does not depend on the samples that it judges": self._heed.of(worker),
            "its feedback does not change as that of a discriminator that learns": (
                self._motion.of(worker)
            ),
            "it gives away discriminators as they came": _MOST_OF_ONE * num_witnesses,
            "others refuse the discriminators that it has had": _MOST_OF_ONE * num_refusals,
        }


def _motion(then: _Look, rows_then: Sequence[int], now: _Look, rows_now: Sequence[int]) -> _Floats:
    """The motion of answers from rows of one look to rows of another; see the top."""
    moved = np.square(now.means[rows_now] - then.means[rows_then]).sum(axis=1)
    by_chance = then.variances[rows_then] + now.variances[rows_now]
    ratios = np.log(np.maximum(moved, _TINY) / np.maximum(by_chance, _TINY))
    motion: _Floats = ratios.clip(-_MOST_MOTION, _MOST_MOTION)
    return motion
