"""How long iterations, or rounds, take; all runs of a figure are counted in the same."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TypeAlias

import numpy as np

from mdgan.records.values import count, said_list, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Row, only, together
from mdgan.report.figures.style import run_colour
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.subject import Subject

_MOST_STRETCHES = 400
_LOG_FROM_RATIO = 12

Timed: TypeAlias = Sequence[tuple[Subject, Mapping[int, float]]]
"""Runs, and the seconds of their complete iterations or rounds by iteration."""


def each(found: Timed) -> Picture:
    """Duration against iteration, or against the number of the round; crosses are outliers."""
    series = [{s.number_of(i): took[i] for i in sorted(took)} for s, took in found]
    middles = [median(took.values()) for took in series]
    factor, unit = time_unit(middles)
    figure, axes = charts.new_axes()
    for (subject, _), took in zip(found, series, strict=True):
        thin = envelope({x: y / factor for x, y in took.items()}, _MOST_STRETCHES)
        charts.draw_line(axes, subject, subject.label, thin, markersize=3, linewidth=1.1)
        slow = {subject.number_of(i) for i in subject.outliers}
        worst = envelope({i: took[i] / factor for i in sorted(slow)}, _MOST_STRETCHES)
        axes.plot(worst.x, worst.high, "x", color=run_colour(subject), markersize=4)
    axes.set_ylabel(f"duration [{unit}]")
    longest = max(max(took.values()) for took in series)
    if not charts.log_if_wide(axes, [*middles, longest], _LOG_FROM_RATIO):
        axes.set_ylim(0, None)
    axes.margins(x=0.01)
    charts.iteration_axis(axes, found[0][0].unit)
    if len(found) > 1:
        charts.legend(figure)
    seen = only([_said(subject) for subject, _ in found])
    if max(map(len, series)) > _MOST_STRETCHES:
        seen += " Lines are medians of short stretches, bands reach from least to greatest."
    return together(figure, seen, *_table(found))


def _said(subject: Subject) -> str:
    """How many are outliers, and whether scoring makes the others longer."""
    told = f"{count(len(subject.outliers), 'outlier')} among "
    told += count(len(subject.durations), subject.unit)
    beside, alone = subject.durations_while_scoring()
    if beside and alone:
        told += (
            f"; the others took {said_seconds(fmean(beside))} in the mean while a generator was "
            f"scored, {said_seconds(fmean(alone))} otherwise"
        )
    return told


def _table(found: Timed) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for subject, took in found:
        ordinary = [took[i] for i in subject.ordinary]
        numbers = (fmean(ordinary), *np.quantile(ordinary, (0.1, 0.5, 0.9)), max(took.values()))
        times = map(said_seconds, map(float, numbers))
        slow = f"{len(subject.outliers):,} of {len(took):,}"
        which = said_list(sorted(map(subject.number_of, subject.outliers)), 8) or "–"
        workers = f"{subject.num_workers:,}" if subject.num_workers else "–"
        limit = said_seconds(subject.threshold)
        rows.append((subject.label, workers, *times, slow, limit, which))
    five = ("mean", "10 % below", "median", "10 % above", "longest of all")
    slow_ones = ("outliers", "outliers are above", f"in {found[0][0].unit}s")
    return ("run", "workers", *five, *slow_ones), rows
