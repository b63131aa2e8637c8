"""Which workers ride for free: their answers ignore the batch, or move less than learning would.

The server draws two figures from every answer and compares them with those of the other workers.

Heed: do samples that are alike get answers that are alike? It is the correlation, over all pairs of
samples of a batch, of the cosine of two samples with the cosine of their two answers, all without
their mean over the batch. Samples are drawn independently. So a worker that answers without looking
at them (a constant, noise, an answer to another batch) has 0 in the mean, whatever its batch.

Motion: how far a worker's mean answer has moved since an earlier iteration, beside how far it would
move because the samples are others: ln(‖F̄(i) − F̄(j)‖² / (s²(i) + s²(j))), where s² is the
variance of a mean over a batch. From one swap to the next the discriminator of a worker that learns
moves; one that is frozen, or a formula in its place, moves only as far as the generator makes it. j
is the last iteration before the swap, in which another worker had the discriminator. The motion is
the lesser of those from that worker's answer and from its own, so that it does not help to ignore
swaps. So WEF-Defense (Chen et al. 2022) looks at how weights evolve, and STD-DAGMM (Fraboni et al.
2021) at the spread of an update.

For each figure the server counts evidence: how much likelier a worker's figures are if it rides for
free than if it is as the others, as a logarithm, and never below 0 (CUSUM, Page 1954). The usual
figure is the median over all workers: fewer than half of them cannot move it.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from itertools import starmap
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.settings import LEAST_SAMPLES, LEAST_WORKERS
from mdgan.records.rows import GUILTY

_LONGEST = 16
"""Iterations over which motion is looked at where no swap comes earlier."""
_EAGER = 200
_SELDOM = 4
"""To save time the server looks whether answers heed their batch in the first iterations, and from
then on in every fourth: evidence comes quickly by then."""
_MEMORY = 25
"""Figures of how many iterations say what is usual, and how far honest workers differ."""
_MOST_OF_ONE = 8.0
"""Evidence that one discriminator gives against a worker that was given it. A quarter of what it
takes: a worker that gives away broken ones must do so again and again to have another one
blamed."""
_LEAST_DEVIATION = 0.3
"""Of motions, which are logarithms."""

_MOST_MOTION = 10.0
_TINY = 1e-30

_Floats = NDArray[np.float64]


class Evidence:
    """That a worker's figures lie below the usual one by a share of it.

    Args:
        share: how far below it those of a free rider lie; 1 if they are 0 in the mean.
        least_deviation: of the figures of honest workers.
        most_at_once: evidence of one figure.
    """

    def __init__(self, share: float, least_deviation: float, most_at_once: float) -> None:
        self._share = share
        self._least_variance = least_deviation**2
        self._most_at_once = most_at_once
        self._usual = self._variance = 0.0
        self._num_seen = 0
        self._found: dict[int, float] = {}
        self._most: dict[int, float] = {}

    def take(self, figures: Mapping[int, float]) -> None:
        """Takes in one figure of every worker that has one; at least of `LEAST_WORKERS`."""
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
            found = max(0.0, self.of(worker) + min(ratio, self._most_at_once))
            self._found[worker] = min(found, self._most.get(worker, math.inf))

    def given(self, worker: int) -> None:
        """A worker was given a discriminator by another one."""
        self._most[worker] = self.of(worker) + _MOST_OF_ONE

    def of(self, worker: int) -> float:
        """The logarithm of a ratio of likelihoods, at least 0."""
        return self._found.get(worker, 0.0)


class _Look(NamedTuple):
    """What is kept of an answer: its mean over the batch, [C·H·W], and the variance of that."""

    mean: _Floats
    variance: float


class FreeRiders:
    """Scores workers by their answers; draws no random number and changes nothing.

    Args:
        batch_size: b.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._pairs = np.triu_indices(batch_size, 1)
        # That of a correlation over so many pairs, where there is none.
        by_chance = 1 / math.sqrt(max(1, len(self._pairs[0]) - 1))
        self._heed = Evidence(1.0, by_chance, 1.0)
        self._motion = Evidence(0.5, _LEAST_DEVIATION, _MOST_OF_ONE)
        self._last: dict[int, _Look] = {}
        self._since: dict[int, tuple[_Look, ...]] = {}
        self._num_since = self._num_looks = 0
        self._known: set[int] = set()

    def look(
        self,
        generated: Tensor,
        assignment: Mapping[int, Assignment],
        feedbacks: Mapping[int, Tensor],
        *,
        swap_follows: bool,
    ) -> None:
        """Looks at the answers of one iteration.

        Args:
            generated: X, [κ, b, C, H, W].
            assignment: which batch each worker judged.
            feedbacks: F_n of every worker whose answer the server has, each [b, C, H, W], finite.
            swap_follows: whether discriminators are swapped after this iteration.
        """
        if self._batch_size < LEAST_SAMPLES or len(feedbacks) < LEAST_WORKERS:
            self._last, self._since = {}, {}
            return
        if self._known:  # those that come later begin with a copy of another's discriminator
            self._was_given(feedbacks.keys() - self._known)
        self._known |= feedbacks.keys()
        self._since = {n: looks for n, looks in self._since.items() if n in feedbacks}
        self._num_since += 1
        self._num_looks += 1
        may_move = swap_follows or self._num_since >= _LONGEST or not self._since
        if self._num_looks > _EAGER and self._num_looks % _SELDOM and not may_move:
            return
        answers = torch.stack(list(feedbacks.values())).flatten(2)
        scales = answers.abs().amax(dim=(1, 2), keepdim=True).clamp(min=_TINY)
        answers = answers / scales  # their products are far from both ends of float32
        products = torch.cat([_products(generated.flatten(2)), _products(answers)])
        spread = _without_means(products.cpu().double().numpy())
        likeness = self._likeness(spread)
        judged = [assignment[worker].judge for worker in feedbacks]
        heeds = (likeness[judged] * likeness[len(generated) :]).sum(axis=1)
        self._heed.take(dict(zip(feedbacks, heeds.tolist(), strict=True)))

        if may_move:
            sizes = scales.flatten().cpu().double().numpy()
            means = answers.mean(dim=1).cpu().double().numpy() * sizes[:, None]
            of_answers = spread[len(generated) :].trace(axis1=1, axis2=2)
            variances = sizes**2 * of_answers / (self._batch_size * (self._batch_size - 1))
            rows = zip(means, variances.tolist(), strict=True)
            self._look_at_motion(dict(zip(feedbacks, starmap(_Look, rows), strict=True)))

    def swapped(self, moves: Mapping[int, int]) -> None:
        """Discriminators are swapped after the iteration that was looked at last.

        Args:
            moves: giver → taker.
        """
        self._was_given(moves.values())
        for giver, taker in moves.items():
            if taker in self._since and giver in self._last:
                self._since[taker] = (*self._since[taker], self._last[giver])

    def scores(self) -> dict[int, float]:
        """By worker, how sure it is that it rides for free, in standard deviations from 0.

        Evidence h is as strong as that of a normal variable √(2h) standard deviations off.
        """
        return {worker: math.sqrt(2 * max(self._against(worker))) for worker in sorted(self._known)}

    def found(self) -> set[int]:
        """The workers whose score says that they ride for free."""
        enough = GUILTY**2 / 2
        return {worker for worker in self._known if max(self._against(worker)) >= enough}

    def why(self, worker: int) -> str:
        """What is found against a worker, in words."""
        heed, motion = self._against(worker)
        if heed >= motion:
            return "its feedback does not depend on the samples that it judges"
        return "its feedback does not change as that of a discriminator that learns"

    def _was_given(self, workers: Iterable[int]) -> None:
        for worker in workers:
            self._heed.given(worker)
            self._motion.given(worker)

    def _look_at_motion(self, looks: dict[int, _Look]) -> None:
        """Compares answers with those since which it is looked at, and begins anew with them."""
        figures = {
            worker: min(_motion(then, looks[worker]) for then in since)
            for worker, since in self._since.items()
        }
        if len(figures) >= LEAST_WORKERS:
            self._motion.take(figures)
        self._last, self._since = looks, {worker: (look,) for worker, look in looks.items()}
        self._num_since = 0

    def _likeness(self, spread: _Floats) -> _Floats:
        """By batch, the cosines of all pairs of samples less their mean, [.., pairs], of length 1.

        All 0 where a batch has no two samples that differ.
        """
        lengths = np.sqrt(spread.diagonal(axis1=1, axis2=2).clip(min=_TINY))
        cosines = (spread / (lengths[:, :, None] * lengths[:, None, :]))[:, *self._pairs]
        cosines = cosines - cosines.mean(axis=1, keepdims=True)
        norms = np.sqrt(np.square(cosines).sum(axis=1, keepdims=True))
        likeness: _Floats = cosines / norms.clip(min=_TINY)
        return likeness

    def _against(self, worker: int) -> tuple[float, float]:
        return self._heed.of(worker), self._motion.of(worker)


def _products(rows: Tensor) -> Tensor:
    """By batch, the products of all samples with each other, [.., b, b] of [.., b, d]."""
    return rows @ rows.mT


def _without_means(products: _Floats) -> _Floats:
    """The products of samples from which the mean of their batch is taken away."""
    rows = products.mean(axis=1, keepdims=True)
    centred: _Floats = products - rows - rows.swapaxes(1, 2) + rows.mean(axis=2, keepdims=True)
    return centred


def _motion(then: _Look, now: _Look) -> float:
    moved = float(np.square(now.mean - then.mean).sum())
    by_chance = then.variance + now.variance
    least = sys.float_info.min
    ratio = max(moved, least) / max(by_chance, least)
    return min(max(math.log(ratio), -_MOST_MOTION), _MOST_MOTION)
