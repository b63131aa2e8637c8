"""How long iterations take, and which take unusually long."""

from collections.abc import Mapping, Sequence
from statistics import fmean, linear_regression, median
from typing import NamedTuple

import numpy as np

from mdgan.records.recorded_run import RecordedSpan

NOT_TRAINING = frozenset({"evaluate", "checkpoint"})
"""Operations that are no part of an iteration, though they may interrupt one."""

_LAST_OPERATION = "step"
"""An iteration or a round without this operation was cut off or aborted."""

OUTLIER_DEVIATIONS = 5
_DEVIATION_PER_MAD = 1.4826

OUTLIERS_ARE = (
    f"longer than the median by more than {OUTLIER_DEVIATIONS} robust standard deviations "
    f"({_DEVIATION_PER_MAD} × the median absolute deviation)."
)


def iteration_durations(spans: Mapping[int, Sequence[RecordedSpan]]) -> dict[int, float]:
    """Seconds from the first start to the last end of every complete iteration.

    Args:
        spans: of the role that owns the generator, by iteration.

    Returns:
        Seconds by iteration, without the time for scoring and checkpoints in between.
    """
    durations = {}
    for iteration, done in sorted(spans.items()):
        if iteration < 1 or all(span.name != _LAST_OPERATION for span in done):
            continue
        training = [span for span in done if span.name not in NOT_TRAINING]
        start, end = min(span.start for span in training), max(span.end for span in training)
        paused = sum(
            max(0.0, min(end, span.end) - max(start, span.start))
            for span in done
            if span.name in NOT_TRAINING
        )
        durations[iteration] = end - start - paused
    return durations


def outlier_threshold(values: Sequence[float]) -> float:
    """The value above which others are outliers: median + 5 · 1.4826 · MAD; infinite for none."""
    if not values:
        return float("inf")
    middle = median(values)
    spread = median(abs(value - middle) for value in values)
    return middle + OUTLIER_DEVIATIONS * _DEVIATION_PER_MAD * spread


class Summary(NamedTuple):
    """Some durations in five numbers.

    Attributes:
        mean: their mean.
        low: a tenth of them are shorter.
        middle: half of them are shorter.
        high: a tenth of them are longer.
        longest: the longest.
    """

    mean: float
    low: float
    middle: float
    high: float
    longest: float


def summary(values: Sequence[float]) -> Summary | None:
    """Five numbers for some durations, or None for no durations."""
    if not values:
        return None
    return Summary(fmean(values), *np.quantile(values, (0.1, 0.5, 0.9, 1.0)).tolist())


class Envelope(NamedTuple):
    """A long series in few points.

    Attributes:
        x: the middle of every stretch.
        low: the least value in it.
        middle: the median in it.
        high: the greatest value in it.
    """

    x: list[float]
    low: list[float]
    middle: list[float]
    high: list[float]


def envelope(series: Mapping[int, float], most: int) -> Envelope:
    """Summarises a long series by stretches of equal length, with the extremes of each.

    Args:
        series: values by iteration, in order.
        most: the greatest number of stretches; a series with no more points is kept whole.
    """
    points = list(series.items())
    size = -(-len(points) // most) if points else 1
    thin = Envelope([], [], [], [])
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        values = [value for _, value in stretch]
        thin.x.append((stretch[0][0] + stretch[-1][0]) / 2)
        thin.low.append(min(values))
        thin.middle.append(median(values))
        thin.high.append(max(values))
    return thin


def straight_line(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The least-squares line through points, (value at 0, slope); None if all have one x."""
    if len({x for x, _ in points}) < 2:
        return None
    slope, start = linear_regression([x for x, _ in points], [y for _, y in points])
    return start, slope
