"""How long a client is going to train in a kind of slot, from what was measured.

Sani et al. 2024, "Pollen", sections 4.2 and 4.2.1, equations 3 and 4. Seconds are measured by other
processes, which may be wrong or lie; predictions decide where clients train and nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import log
from statistics import fmean

import numpy as np

Curve = tuple[float, float, float]
"""Equation 3 without its redundant c: a, b, d of f(x) = a·x + b·log(x) + d; none is negative."""

Point = tuple[int, int, float]
"""A number of batches, how many clients had it, and the mean seconds that they took."""

_LEAST_SECONDS, _MOST_SECONDS = 1e-9, 1e6


class TrainingTimes:
    """The seconds that clients took, and the curves through them.

    For every kind, round and number of batches the count and the sum are kept, and no client. Those
    of rounds that no longer count by themselves are added up: memory does not grow with rounds.

    Attributes:
        curves: by kind, as fitted last.
    """

    def __init__(self, window: int | None = None, recent: int = 1) -> None:
        """Starts with nothing observed.

        Args:
            window: how many rounds the curves follow (≥ 1); None: all (`--time-window`).
            recent: how many rounds correct the curves: r ≥ 1 of equation 4; the paper's is 1.
        """
        self._window = window
        self._recent = recent
        self._rounds: defaultdict[int, _Sums] = defaultdict(_Sums)
        self._older = _Sums()
        self._lately: dict[tuple[str, int], float] = {}
        self.curves: dict[str, Curve] = {}

    def observe(self, round_number: int, kind: str, x: int, seconds: float) -> None:
        """Notes how long one client took.

        Args:
            round_number: in which it trained.
            kind: of the slot.
            x: its number of batches, ≥ 1.
            seconds: left out unless within [1e-9, 1e6].
        """
        if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            self._rounds[round_number].add(kind, x, 1, seconds)

    def fit(self, until_round: int) -> None:
        """Fits the curves to what was observed in this round and before.

        Args:
            until_round: t-2 for round t, as round t-1 trains meanwhile (section 4.2).
        """
        window = self._window
        lately = sorted(n for n in self._rounds if until_round - self._recent < n <= until_round)
        means = [self._rounds[n].means() for n in lately]
        seen = {key for found in means for key in found}
        self._lately = {key: fmean(found[key] for found in means if key in found) for key in seen}

        fitted = _Sums(self._older)
        for number in sorted(n for n in self._rounds if n <= until_round):
            if window is None or number > until_round - window:
                fitted.merge(self._rounds[number])
            else:
                del self._rounds[number]
        self.curves = {kind: fit_curve(points) for kind, points in fitted.by_kind()}
        if window is None:
            for number in [n for n in self._rounds if n <= until_round - self._recent]:
                self._older.merge(self._rounds.pop(number))

    def seconds(self, kind: str, x: int) -> float:
        """Predicts how long a client takes: g(x) of equation 4.

        That is the mean of f(x) and of what clients with x batches took lately; f(x) if there were
        none. A kind without a curve gets the mean of the other kinds, and x before any curve is
        fitted.

        Args:
            kind: of slot.
            x: number of batches, ≥ 1.

        Returns:
            Finite, ≥ 0.
        """
        if kind in self.curves:
            predicted = curve_at(self.curves[kind], x)
            return (predicted + self._lately.get((kind, x), predicted)) / 2
        return fmean(self.seconds(other, x) for other in self.curves) if self.curves else float(x)


def fit_curve(points: Iterable[Point]) -> Curve:
    """Fits a curve by non-negative least squares, every client counting the same.

    Args:
        points: at least one. With one number of batches the curve is a line through zero.
    """
    from scipy.optimize import nnls  # takes a third of a second to import; only `lb` fits

    x, count, seconds = (np.array(part, dtype=np.float64) for part in zip(*points, strict=True))
    columns = np.stack([x, np.log(x), np.ones_like(x)], axis=1)
    scale = np.maximum(columns.max(axis=0), 1e-9)
    weight = np.sqrt(count / count.max())
    unit = seconds.max()
    try:
        found, _ = nnls(columns / scale * weight[:, None], seconds / unit * weight)
    except RuntimeError:  # it did not converge
        return 0.0, 0.0, float(np.average(seconds, weights=count))
    a, b, d = (found * unit / scale).tolist()
    return a, b, d


def curve_at(curve: Curve, x: int) -> float:
    """Seconds on a curve: f(x) of equation 3, for x ≥ 1."""
    a, b, d = curve
    return a * x + b * log(x) + d


class _Sums(dict[tuple[str, int], tuple[int, float]]):
    """Kind and number of batches → how many clients, and the sum of their seconds."""

    def add(self, kind: str, x: int, count: int, seconds: float) -> None:
        before, total = self.get((kind, x), (0, 0.0))
        self[kind, x] = before + count, total + seconds

    def merge(self, others: "_Sums") -> None:
        for (kind, x), (count, seconds) in others.items():
            self.add(kind, x, count, seconds)

    def means(self) -> dict[tuple[str, int], float]:
        return {key: seconds / count for key, (count, seconds) in self.items()}

    def by_kind(self) -> Iterator[tuple[str, list[Point]]]:
        for kind in sorted({kind for kind, _ in self}):
            points = [(x, *self[k, x]) for k, x in sorted(self) if k == kind]
            yield kind, [(x, count, seconds / count) for x, count, seconds in points]
