"""How long clients took beside what was predicted, and the curves of the predictions."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.values import chosen_evenly, said, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Row, Table, one_each
from mdgan.report.figures.slots import Look, short
from mdgan.report.figures.style import COLOURS, DASHED, MARKERS, SOFT
from mdgan.report.numbers.placements import Fit
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import SURFACES

Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""Kind of slot → predicted and measured seconds of clients."""

_MOST_DOTS = 800
_MOST_KINDS = len(COLOURS)
_MOST_ROWS = 40
_STEPS = 60
_CARD = SURFACES["card"].light


def against_measured(found: Sequence[tuple[Subject, Pairs]]) -> Picture:
    """Measured against predicted seconds, a dot a client."""
    rows: list[Row] = []
    for subject, kinds in found:
        for kind, pairs in chosen_evenly(list(kinds.items()), max(2, _MOST_ROWS // len(found))):
            ratios = [seconds / predicted for predicted, seconds in pairs]
            near = fmean(1 / 1.1 <= ratio <= 1.1 for ratio in ratios)
            rows.append(
                (subject.label, short(kind), f"{len(pairs):,}", _error(pairs),
                 f"{100 * near:.0f} %", f"{median(ratios):.2f}")
            )  # fmt: skip
    header = ("run", "kind", "clients", "error, median", "within 10 %", "measured / predicted")
    return one_each(found, _draw_pairs, _said_pairs, Table(header, rows))


def _error(pairs: Sequence[tuple[float, float]]) -> str:
    return f"{100 * median(abs(s - predicted) / s for predicted, s in pairs):.0f} %"


def _said_pairs(_subject: Subject, kinds: Pairs) -> str:
    every = [pair for pairs in kinds.values() for pair in pairs]
    near = f"of half of the {len(every):,} clients the prediction was less than {_error(every)} off"
    return near + _left_out(kinds)


def _draw_pairs(_subject: Subject, kinds: Pairs) -> Figure:
    figure, axes = charts.new_axes(3.6)
    every = [seconds for pairs in kinds.values() for pair in pairs for seconds in pair]
    factor, unit = time_unit(every)
    low, high = min(every) / factor, max(every) / factor
    _dots(axes, kinds, (factor, factor))
    axes.plot((low, high), (low, high), color=SOFT, linestyle=DASHED, linewidth=1.1, zorder=1)
    if not charts.log_if_wide(axes, (low, high), which="xy"):
        axes.set(xlim=(0, None), ylim=(0, None))
    axes.set(xlabel=f"predicted [{unit}]", ylabel=f"measured [{unit}]")
    axes.grid(axis="x")
    charts.legend(figure)
    return figure


def _dots(
    axes: Axes, kinds: Mapping[str, Sequence[tuple[float, float]]], factors: tuple[float, float]
) -> None:
    """A dot for each pair, in the colour and with the marker of its kind."""
    for place, (kind, pairs) in enumerate(list(kinds.items())[:_MOST_KINDS]):
        shown = chosen_evenly(sorted(pairs), _MOST_DOTS // min(len(kinds), _MOST_KINDS))
        x = [value / factors[0] for value, _ in shown]
        y = [value / factors[1] for _, value in shown]
        look: Look = {"color": COLOURS[place], "marker": MARKERS[place], "alpha": 0.55}
        axes.plot(x, y, linestyle="none", markersize=3.2, markeredgewidth=0, **look)
        axes.plot([], [], **{**look, "alpha": 1}, linestyle="none", label=short(kind) or "slots")


def curves(found: Sequence[tuple[Subject, Mapping[str, Fit]]]) -> Picture:
    """Seconds against batches with the fitted curves; what they leave stands in the table."""
    rows: list[Row] = []
    for subject, kinds in found:
        for kind, fit in chosen_evenly(list(kinds.items()), max(2, _MOST_ROWS // len(found))):
            left = [abs(residual) for residual in fit.residuals()]
            rows.append(
                (subject.label, short(kind), f"{len(fit.points):,}", *map(said, fit.curve),
                 said_seconds(median(left)))
            )  # fmt: skip
    header = ("run", "kind", "clients", "a [s]", "b [s]", "d [s]", "residual, median")
    return one_each(found, _draw_curves, _said_curves, Table(header, rows))


def _said_curves(_subject: Subject, kinds: Mapping[str, Fit]) -> str:
    told = []
    for kind, fit in list(kinds.items())[:2]:
        parts = zip(map(said, fit.curve), ("·x", "·log(x)", ""), strict=True)
        curve = " + ".join(f"{part}{of}" for part, of in parts if part != "0")
        told.append(f"{short(kind) or 'slots'}: {curve or '0'} seconds")
    return "; ".join(told) + _left_out(kinds)


def _left_out(kinds: Mapping[str, object]) -> str:
    some = f"; only {_MOST_KINDS} of {len(kinds):,} kinds of slots are drawn"
    return some if len(kinds) > _MOST_KINDS else ""


def _draw_curves(_subject: Subject, kinds: Mapping[str, Fit]) -> Figure:
    figure, axes = charts.new_axes(3.6)
    shown = dict(list(kinds.items())[:_MOST_KINDS])
    every = [point for fit in shown.values() for point in fit.points]
    factor, unit = time_unit([seconds for _, seconds in every])
    _dots(axes, {kind: fit.points for kind, fit in shown.items()}, (1, factor))
    for place, fit in enumerate(shown.values()):
        low, high = min(fit.points)[0], max(fit.points)[0]
        x = [low * (high / low) ** (k / _STEPS) for k in range(_STEPS + 1)]
        y = [fit.at(value) / factor for value in x]
        axes.plot(x, y, color=_CARD, linewidth=3, zorder=3)  # so that dots do not hide it
        axes.plot(x, y, color=COLOURS[place], zorder=4)
    if not charts.log_if_wide(axes, [seconds / factor for _, seconds in every]):
        axes.set_ylim(0, None)
    if not charts.log_if_wide(axes, [x for x, _ in every], which="x"):
        charts.iteration_axis(axes)
    axes.set(xlabel="batches", ylabel=f"time [{unit}]")
    charts.legend(figure)
    return figure
