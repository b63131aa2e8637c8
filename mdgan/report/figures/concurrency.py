"""How hosts searched for the number of slots that trains the most batches a second."""

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mdgan.records.values import chosen_evenly, said
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Row, Table, one_each
from mdgan.report.figures.slots import Look
from mdgan.report.figures.style import COLOURS, INK, MARKERS
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.placements import MOST_LANES, Tried, rates_by_number
from mdgan.report.numbers.subject import Subject

Climbs = Mapping[int, Sequence[Tried]]
"""Host → the numbers of slots that it used, in order."""

_FEW = len(COLOURS)
_MOST_ROWS = 40
_MOST_STRETCHES = 300
_APART = 0.1
"""Slots by which lines of hosts are moved, so that none hides another."""


def over_rounds(found: Sequence[tuple[Subject, Climbs]]) -> Picture:
    """Slots and rate of every host against rounds."""
    return one_each(_some(found), _draw_rounds, _said, _table(found))


def by_slots(found: Sequence[tuple[Subject, Climbs]]) -> Picture:
    """The rate of every host against its number of slots, and the number that it kept."""
    return one_each(_some(found), _draw_rates, _said, _table(found))


def _some(found: Sequence[tuple[Subject, Climbs]]) -> list[tuple[Subject, Climbs]]:
    """No more hosts than a drawing can hold."""
    return [
        (subject, dict(chosen_evenly(list(climbs.items()), MOST_LANES)))
        for subject, climbs in found
    ]


def _table(found: Sequence[tuple[Subject, Climbs]]) -> Table:
    rows: list[Row] = [
        (subject.label, f"host {host}", f"{one.num_slots:,}",
         f"{one.rounds[0]:,} to {one.rounds[-1]:,}", said(median(one.rates)))
        for subject, climbs in found
        for host, tried in climbs.items()
        for one in tried
    ]  # fmt: skip
    header = ("run", "host", "slots", "rounds", "batches a second, median")
    return Table(header, chosen_evenly(rows, _MOST_ROWS))


def _said(_subject: Subject, climbs: Climbs) -> str:
    told = []
    for host, tried in list(climbs.items())[:_FEW]:
        last = tried[-1]
        gain = median(last.rates) / median(tried[0].rates)
        told.append(
            f"host {host} went from {tried[0].num_slots} to {last.num_slots} ({gain:.2f} ×)"
        )
    return f"slots, and batches a second: {', '.join(told)}"


def _draw_rounds(_subject: Subject, climbs: Climbs) -> Figure:
    figure = charts.new_figure(3.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for place, (host, tried) in enumerate(climbs.items()):
        few = len(climbs) <= _FEW
        look: Look = {"color": COLOURS[place % _FEW], "alpha": 1.0 if few else 0.5}
        apart = _APART * (place - (len(climbs) - 1) / 2) if few else 0.0
        numbers = {n: one.num_slots + apart for one in tried for n in one.rounds}
        label = f"host {host}" if few else None
        upper.step([*numbers], [*numbers.values()], where="mid", label=label, **look)
        rates = {n: rate for one in tried for n, rate in zip(one.rounds, one.rates, strict=True)}
        thin = envelope(rates, _MOST_STRETCHES)
        lower.plot(thin.x, thin.middle, **look)
    for axes, label in ((upper, "slots"), (lower, "batches a second")):
        charts.count_axis(axes, label)
    upper.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    charts.iteration_axis(lower, "round")
    charts.legend(figure, upper)
    return figure


def _draw_rates(_subject: Subject, climbs: Climbs) -> Figure:
    figure, axes = charts.new_axes(3.0)
    for place, (host, tried) in enumerate(climbs.items()):
        few = len(climbs) <= _FEW
        look: Look = {"color": COLOURS[place % _FEW], "alpha": 1.0 if few else 0.5}
        rates = rates_by_number(tried)
        low, middle, high = zip(*rates.values(), strict=True)
        axes.fill_between([*rates], low, high, color=look["color"], alpha=0.15, linewidth=0)
        marker = MARKERS[place % len(MARKERS)]
        axes.plot([*rates], middle, marker=marker, label=f"host {host}" if few else None, **look)
        kept = tried[-1].num_slots
        label = "kept" if place == len(climbs) - 1 else None
        axes.plot(
            kept, rates[kept][1], "o", markersize=10, markerfacecolor="none",
            markeredgecolor=INK, label=label,
        )  # fmt: skip
    charts.count_axis(axes, "batches a second")
    charts.iteration_axis(axes, "slots")
    charts.legend(figure)
    return figure
