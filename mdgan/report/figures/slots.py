"""Where the clients of a round trained."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.placements import Place, Placed
from mdgan.records.values import chosen_evenly, count, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import AXIS, IDLE
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
    figure, axes = charts.new_axes(0.75 + _lanes_height(len(slots)), wide)
    _make_lanes(axes, [slot.place for slot in slots], (0, seconds / factor), wide)
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


def _lanes_height(number: int) -> float:
    return max(0.1, min(0.3, 4 / number)) * number


def _make_lanes(
    axes: Axes, places: Sequence[Place], length: tuple[float, float], wide: bool
) -> None:
    """A lane for each slot; if there are several kinds, a line between them, and their names."""
    names = [name_of(place) for place in places]
    charts.make_lanes(axes, names, length, wide)
    charts.some_names(axes.set_yticks, names)
    kinds = [(kind, len([*group])) for kind, group in groupby(place.kind for place in places)]
    ends = [sum(size for _, size in kinds[: n + 1]) - 0.5 for n in range(len(kinds))]
    if len(kinds) <= _MOST_KINDS:
        axes.hlines(ends[:-1], *length, color=AXIS, linewidth=0.8)
    if wide and len(kinds) > 1:
        middles = [(end - size / 2, kind) for end, (kind, size) in zip(ends, kinds, strict=True)]
        shown = chosen_evenly(middles, _MOST_KINDS)
        right = axes.secondary_yaxis("right")
        right.set_yticks([y for y, _ in shown], [short(kind) for _, kind in shown])
        right.spines["right"].set_visible(False)


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.0f} %"
