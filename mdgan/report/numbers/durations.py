"""How long iterations take, and which take unusually long."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from mdgan.records.recorded_run import RecordedSpan

NOT_TRAINING = frozenset({"evaluate", "checkpoint"})
"""Operations that are no part of an iteration, though they may interrupt one."""

_LAST_OPERATION = "step"
"""An iteration or a round without this operation was cut off or aborted."""

MOST_STRETCHES = 300
"""Of a line that is drawn."""
OUTLIER_DEVIATIONS = 5
_DEVIATION_PER_MAD = 1.4826

OUTLIERS_ARE = (
    f"longer than the median by more than {OUTLIER_DEVIATIONS} robust standard deviations "
    f"({_DEVIATION_PER_MAD} × the median absolute deviation)."
)


def iteration_durations(spans: Mapping[int, Sequence[RecordedSpan]]) -> dict[int, float]:
    """Seconds from the first start to the last end of every complete iteration.

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


class BandedLine(NamedTuple):
    """A line with a band."""

    x: list[float]
    low: list[float]
    middle: list[float]
    high: list[float]

    def add(self, x: float, values: Sequence[float], middle: float, spread: float = 0.0) -> None:
        """Adds a point, whose band holds some values."""
        new = (x, min(values) - spread, middle, max(values) + spread)
        for series, value in zip(self, new, strict=True):
            series.append(float(value))


def envelope(series: Mapping[int, float], most: int) -> BandedLine:
    """The medians of a long series by stretches of equal length, with the extremes of each.

    Args:
        most: the greatest number of stretches; a series with no more points is kept whole.
    """
    points = list(series.items())
    size = -(-len(points) // most) if points else 1
    thin = BandedLine([], [], [], [])
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        values = [value for _, value in stretch]
        thin.add((stretch[0][0] + stretch[-1][0]) / 2, values, median(values))
    return thin
