"""Columns of a table, real beside synthetic; real rows are seen as sums alone."""

from itertools import zip_longest
from typing import Annotated, Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from msgspec import Meta, Struct

from mdgan.errors import printable
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import json_object, typed
from mdgan.records.run_directory import FIGURES_FILE, TOLD_PAIRS
from mdgan.report.figures import charts
from mdgan.report.figures.picture import OfRun, Row
from mdgan.report.numbers.scores import score_events
from mdgan.report.numbers.subject import Subject
from mdgan.storage.foreign_file import read_whole

_Share = Annotated[float, Meta(ge=0, le=1.001)]
_Correlation = Annotated[float, Meta(ge=-1.001, le=1.001)]
_Matrix = list[list[_Correlation | None]]
_Name = Annotated[str, Meta(max_length=10_000)]

_MOST_DRAWN, _ACROSS = 60, 5
_LONGEST_NAME, _MOST_TICKS = 16, 3
_NUMBERS = ("number", "whole", "date", "time")


class ColumnShape(Struct, frozen=True):
    """The shares of rows with each value or between two ticks; see `samples.table.scores`."""

    name: _Name
    kind: str
    ticks: list[_Name]  # of a column of numbers the edges of bars, else the names of bars
    real: list[_Share]
    made: list[_Share]

    @property
    def is_sound(self) -> bool:
        """Whether there are as many shares as the ticks say, and some."""
        bars = len(self.ticks) - (self.kind in _NUMBERS)
        return 0 < bars == len(self.real) == len(self.made)


class KeptRule(Struct, frozen=True):
    """How many synthetic rows keep a rule of the schema, and how many held-out ones."""

    rule: _Name
    made: int
    real: int | None = None


class TableFigures(Struct, frozen=True):
    """What the scorer found of columns, and of those with numbers or two values of pairs."""

    columns: list[ColumnShape] = []
    correlated: list[_Name] = []
    made: _Matrix = []
    real: _Matrix | None = None
    rules: list[KeptRule] = []


def table_figures(run: RecordedRun) -> TableFigures | None:
    """The columns of the newest scores; None if there are none, or the file makes no sense."""
    path = run.path / FIGURES_FILE
    try:
        scored = typed(json_object(read_whole(path)), TableFigures)
    except (OSError, ValueError):
        return None
    return scored if scored.columns and all(one.is_sound for one in scored.columns) else None


def correlations(run: RecordedRun) -> TableFigures | None:
    """The same, if there are correlations of at least two columns."""
    return _with_matrices(table_figures(run))


def _with_matrices(scored: TableFigures | None) -> TableFigures | None:
    size = 0
    if scored is not None:
        size = len(scored.correlated)
        for matrix in (scored.made, scored.real or scored.made):
            if len(matrix) != size or any(len(row) != size for row in matrix):
                return None
    return scored if size > 1 else None


def table_columns(subject: Subject) -> OfRun | None:
    """How the values of each column are distributed."""
    if (scored := table_figures(subject.run)) is None:
        return None
    shown = scored.columns[:_MOST_DRAWN]
    across = min(_ACROSS, len(shown))
    down = -(-len(shown) // across)
    figure = charts.new_figure(0.5 + 1.35 * down, charts.WIDE_INCHES)
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, column in zip_longest(grid, shown):
        if column is None:
            axes.set_visible(False)
        else:
            _draw_column(axes, column, charts.run_colour(subject))
    charts.legend(figure)
    left_out = len(scored.columns) - _MOST_DRAWN
    summary = f"{left_out} more columns stand in the table" if left_out > 0 else ""
    for kept in scored.rules:
        real = "" if kept.real is None else f", {kept.real:,} held-out ones"
        summary += "; " if summary else ""
        summary += f"{kept.rule}: {kept.made:,} synthetic rows keep it{real}"
    header = ("column", "kind", "most usual", "of real rows", "of synthetic", "differing")
    return OfRun(map(_row_of_column, scored.columns), summary, figure, header=header)


def _draw_column(axes: Axes, column: ColumnShape, colour: str) -> None:
    x = range(len(column.real))
    look: dict[str, Any] = {"facecolor": charts.IDLE, "edgecolor": charts.AXIS, "linewidth": 0.6}
    real, made = ([100 * share for share in shares] for shares in (column.real, column.made))
    bars = axes.bar(x, real, width=0.95, **look, label="real rows")
    charts.name_bars(bars, column.ticks)
    bars = axes.bar(x, made, width=0.5, color=colour, label="synthetic rows")
    charts.name_bars(bars, column.ticks)
    axes.set_title(_brief(column.name))
    axes.yaxis.set_major_locator(MaxNLocator(2))
    axes.grid(visible=False, axis="x")
    if column.kind in _NUMBERS:
        ends = [-0.5, len(column.real) - 0.5]
        axes.set_xticks(ends, [_brief(column.ticks[0]), _brief(column.ticks[-1])])
        first, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
    else:
        charts.some_names(axes.set_xticks, [_brief(tick) for tick in column.ticks], _MOST_TICKS)


def _brief(name: str) -> str:
    name = printable(name, _LONGEST_NAME + 1)  # the drawing library ends at what is no text
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _row_of_column(column: ColumnShape) -> Row:
    differ = sum(abs(a - b) for a, b in zip(column.real, column.made, strict=True)) / 2
    most = max(range(len(column.real)), key=column.real.__getitem__)
    usual = column.ticks[most]
    if column.kind in _NUMBERS:
        usual = f"{usual} to {column.ticks[most + 1]}"
    shares = (column.real[most], column.made[most], differ)
    return column.name, column.kind, usual, *(f"{100 * share:.1f} %" for share in shares)


def rare_values(subject: Subject) -> OfRun | None:
    """Values that few rows have, as the newest scores found them; those that lack most first."""
    scored = [event for event in score_events(subject.run) if event.rare]
    header = ("column", "value", "rows expected", "rows generated")
    rows = [
        (one.column, one.value, f"{one.expected:,.1f}", f"{one.generated:,}")
        for event in scored[-1:]
        for one in event.rare
    ]
    return OfRun(rows, header=header) if rows else None


def table_correlations(subject: Subject) -> OfRun | None:
    """Correlations, as pictures; the rows are the pairs that differ most."""
    if (scored := correlations(subject.run)) is None:
        return None
    return _matrices(scored, "held-out real rows", "synthetic rows", vmin=-1, vmax=1, cmap="RdBu")


def told_pairs(subject: Subject) -> OfRun | None:
    """How near rows are to what workers told, and would be if noise alone made them differ."""
    try:
        scored = _with_matrices(typed(subject.run.named(TOLD_PAIRS)[-1], TableFigures))
    except (LookupError, ValueError):
        return None
    titles = "if noise alone differed", "generated rows"
    return None if scored is None else _matrices(scored, *titles, vmin=0.5, vmax=1, cmap="Blues_r")


def _matrices(scored: TableFigures, of_real: str, of_made: str, **look: Any) -> OfRun:
    """Two matrices, or one, side by side; the rows are the pairs that differ most."""
    matrices = [(of_made, scored.made)]
    if scored.real is not None:
        matrices.insert(0, (of_real, scored.real))
    figure = charts.new_figure(3.9, charts.WIDE_INCHES)
    names = [_brief(name) for name in scored.correlated]
    grid = figure.subplots(1, len(matrices), squeeze=False)[0]
    for axes, (title, matrix) in zip(grid, matrices, strict=True):
        values = [[float("nan") if value is None else value for value in row] for row in matrix]
        drawn = axes.imshow(values, **look, rasterized=True)
        axes.set_title(title)
        axes.grid(visible=False)
        charts.some_names(axes.set_yticks, names, 30)
        charts.some_names(axes.set_xticks, names, 30)
        axes.tick_params(axis="x", rotation=90)
    figure.colorbar(drawn, ax=list(grid), shrink=0.8)
    full = scored.correlated
    size = len(full)
    real = scored.real or [[None] * size] * size
    pairs = [
        (abs(made_value - real_value), a, b, real_value, made_value)
        for a in range(size)
        for b in range(a)
        if (real_value := real[a][b]) is not None and (made_value := scored.made[a][b]) is not None
    ]
    rows = [
        (f"{full[b]} and {full[a]}", f"{real_value:.2f}", f"{made_value:.2f}")
        for _, a, b, real_value, made_value in sorted(pairs, reverse=True)[:20]
    ]
    return OfRun(rows, figure=figure, header=("columns", of_real, of_made))
