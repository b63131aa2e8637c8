"""Where the clients of a round trained, and how long they took beside what was predicted."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.placements import Place, Placed
from mdgan.records.values import chosen_evenly, count, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Row, Table, one_each
from mdgan.report.figures.style import AXIS, COLOURS, DASHED, IDLE, MARKERS, SOFT
from mdgan.report.numbers import placements as numbers
from mdgan.report.numbers.placements import MOST_LANES
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import HEAT, SURFACES

Look = dict[str, Any]
"""A style for matplotlib."""

_HEIGHT = 0.76
_FEW_BARS = 1200
_MOST_ROWS = 40
_LONGEST_KIND = 36
_MOST_KINDS = 12
_CARD = SURFACES["card"].light
_SHADES = (0.27, 0.48, 0.72, 1.0)


def by_batches(found: Sequence[tuple[Subject, Placed]]) -> Picture:
    """The clients of a typical round, shaded by their batches."""
    rows = [
        (subject.label, name_of(slot.place), short(slot.kind), f"{len(slot.clients):,}",
         f"{slot.work:,}", said_seconds(slot.busy), said_seconds(numbers.predicted_of(slot)),
         percent(numbers.idle_share(slot, row)))
        for subject, row in found
        for slot in chosen_evenly(numbers.lanes(row), max(2, _MOST_ROWS // len(found)))
    ]  # fmt: skip
    header = ("run", "slot", "kind", "clients", "batches", "trained", "predicted", "idle")
    wide, narrow = (partial(_draw_round, wide=wide) for wide in (True, False))
    return one_each(found, wide, _said_round, Table(header, rows), narrow)


def _said_round(_subject: Subject, row: Placed) -> str:
    idle = fmean(numbers.idle_share(slot, row) for slot in row.slots)
    num_clients = sum(len(slot.clients) for slot in row.slots)
    left_out = count(len(row.slots) - MOST_LANES, "more slot is", "more slots are")
    more = f"; only {MOST_LANES} fit, {left_out} left out" if len(row.slots) > MOST_LANES else ""
    return (
        f"round {row.number + 1:,}, placed by {short(row.strategy)}: "
        f"{count(num_clients, 'client')} in {count(len(row.slots), 'slot')}, "
        f"{said_seconds(row.makespan)}, {percent(idle)} of the slots' time idle{more}"
    )


def _draw_round(_subject: Subject, row: Placed, wide: bool) -> Figure:
    slots, seconds = numbers.lanes(row), numbers.round_seconds(row)
    factor, unit = time_unit([seconds])
    figure, axes = _new_lanes([slot.place for slot in slots], seconds / factor, wide)
    tops, names = _shades(row)
    boxes: list[list[charts.Rectangle]] = [[] for _ in names]
    for y, slot in enumerate(slots):
        for one in numbers.bars(slot, numbers.shortest_bar(row)):
            box = (one.begin / factor, y - _HEIGHT / 2, one.seconds / factor, _HEIGHT)
            boxes[sum(one.batches > top for top in tops[:-1])].append(box)
    lanes = [(0.0, y - _HEIGHT / 2, seconds / factor, _HEIGHT) for y in range(len(slots))]
    charts.rectangles(axes, lanes, facecolor=IDLE, linewidth=0)
    every = [box for each in boxes for box in each]
    charts.rectangles(axes, every, facecolor=_CARD, linewidth=0)  # shades are as in the legend
    edge = 0.6 if len(every) <= _FEW_BARS else 0
    opacities = _SHADES[-len(names) :] if len(names) > 1 else (0.7,)
    for name, opacity, shaded in zip(names, opacities, boxes, strict=True):
        look: Look = {"facecolor": HEAT.light, "alpha": opacity, "edgecolor": _CARD}
        nothing = [(0.0, 0.0, 0.0, 0.0)]
        charts.rectangles(axes, shaded or nothing, **look, linewidth=edge, label=name)
    axes.set_xlabel(f"time since the round began [{unit}]")
    charts.legend(figure)
    return figure


def _shades(row: Placed) -> tuple[list[int], list[str]]:
    """Up to four shades of about as many clients each: the most batches of each, and its name."""
    sizes = sorted(x for slot in row.slots for x in slot.batches)
    tops = sorted({*sizes})
    if len(tops) > len(_SHADES):
        quarters = range(1, len(_SHADES) + 1)
        tops = sorted({sizes[-(-k * len(sizes) // len(_SHADES)) - 1] for k in quarters})
    lows = [min(x for x in sizes if x > before) for before in (-1, *tops[:-1])]
    names = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in zip(lows, tops, strict=True)]
    names[-1] += " batches"
    return tops, names


def short(text: str, most: int = _LONGEST_KIND) -> str:
    """A text of a record on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def name_of(place: Place) -> str:
    """Of a slot, beside its lane."""
    return f"host {place.host}, slot {place.number}"


def _new_lanes(places: Sequence[Place], length: float, wide: bool) -> tuple[Figure, Axes]:
    """A lane for each slot; if there are several kinds, a line between them, and their names."""
    names = [name_of(place) for place in places]
    height = 0.75 + max(0.1, min(0.3, 4 / len(names))) * len(names)
    figure, axes = charts.lane_chart(height, names, (0, length), wide)
    charts.some_names(axes.set_yticks, names)
    kinds = [(kind, len([*group])) for kind, group in groupby(place.kind for place in places)]
    ends = [sum(size for _, size in kinds[: n + 1]) - 0.5 for n in range(len(kinds))]
    if len(kinds) <= _MOST_KINDS:
        axes.hlines(ends[:-1], 0, length, color=AXIS, linewidth=0.8)
    if wide and len(kinds) > 1:
        middles = [(end - size / 2, kind) for end, (kind, size) in zip(ends, kinds, strict=True)]
        shown = chosen_evenly(middles, _MOST_KINDS)
        right = axes.secondary_yaxis("right")
        right.set_yticks([y for y, _ in shown], [short(kind) for _, kind in shown])
        right.spines["right"].set_visible(False)
    return figure, axes


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.0f} %"


Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""Kind of slot → predicted and measured seconds of clients."""

_MOST_DOTS = 800
_MOST_COLOURED = len(COLOURS)


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
    few = f"; only {_MOST_COLOURED} of {len(kinds):,} kinds of slots are drawn"
    return near + (few if len(kinds) > _MOST_COLOURED else "")


def _draw_pairs(_subject: Subject, kinds: Pairs) -> Figure:
    figure, axes = charts.new_axes(3.6)
    every = [seconds for pairs in kinds.values() for pair in pairs for seconds in pair]
    factor, unit = time_unit(every)
    low, high = min(every) / factor, max(every) / factor
    drawn = list(kinds.items())[:_MOST_COLOURED]
    for place, (kind, pairs) in enumerate(drawn):
        shown = chosen_evenly(sorted(pairs), _MOST_DOTS // len(drawn))
        x, y = ([pair[k] / factor for pair in shown] for k in (0, 1))
        look: Look = {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": "none"}
        axes.plot(x, y, markersize=3.2, markeredgewidth=0, alpha=0.55, **look)
        axes.plot([], [], **look, label=short(kind) or "slots")
    axes.plot((low, high), (low, high), color=SOFT, linestyle=DASHED, linewidth=1.1, zorder=1)
    if not charts.log_if_wide(axes, (low, high), which="xy"):
        axes.set(xlim=(0, None), ylim=(0, None))
    axes.set(xlabel=f"predicted [{unit}]", ylabel=f"measured [{unit}]")
    axes.grid(axis="x")
    charts.legend(figure)
    return figure
