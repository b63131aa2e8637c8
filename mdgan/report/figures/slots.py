"""Where the clients of a round trained."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.placements import InSlot, Place, Placed, Trained
from mdgan.records.values import chosen_evenly, count, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import AXIS, COLOURS, IDLE, INK, SOFT
from mdgan.report.numbers import placements as numbers
from mdgan.report.numbers.placements import MOST_LANES
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import HEAT, OTHER, SURFACES

Look = dict[str, Any]
"""A style for matplotlib."""

Shading = tuple[Sequence[tuple[str, Look]], Callable[[Trained], int]]
"""Names and looks of bars in the order of the legend, and which of them a client has."""

_HEIGHT = 0.76
_FEW_BARS = 1200
_MOST_ROWS = 40
_LONGEST_KIND = 36
_MOST_KINDS = 12
_CARD = SURFACES["card"].light
_SHADES = (0.27, 0.48, 0.72, 1.0)


def by_batches(found: Sequence[tuple[Subject, Placed]]) -> Picture:
    """The clients of a typical round, shaded by their batches."""
    return _one_round(found, _batch_shading)


def by_prediction(found: Sequence[tuple[Subject, Placed]]) -> Picture:
    """The same clients, coloured by how long they took beside what was predicted."""
    return _one_round(found, _prediction_shading)


def _one_round(
    found: Sequence[tuple[Subject, Placed]], shading: Callable[[Placed], Shading]
) -> Picture:
    rows = [
        (subject.label, name_of(slot.place), short(slot.kind), f"{len(slot.clients):,}",
         f"{slot.work:,}", said_seconds(slot.busy), said_seconds(numbers.predicted_of(slot)),
         percent(numbers.idle_share(slot, row)))
        for subject, row in found
        for slot in chosen_evenly(numbers.lanes(row), max(2, _MOST_ROWS // len(found)))
    ]  # fmt: skip
    header = ("run", "slot", "kind", "clients", "batches", "trained", "predicted", "idle")
    wide, narrow = (partial(_draw_round, shading=shading, wide=wide) for wide in (True, False))
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


def _draw_round(
    _subject: Subject, row: Placed, shading: Callable[[Placed], Shading], wide: bool
) -> Figure:
    slots, seconds = numbers.lanes(row), numbers.round_seconds(row)
    factor, unit = time_unit([seconds])
    figure = charts.new_figure(0.75 + _lanes_height(len(slots)), wide)
    axes = figure.subplots()
    _make_lanes(axes, [slot.place for slot in slots], (0, seconds / factor), wide)
    looks, look_of = shading(row)
    boxes: defaultdict[int, list[charts.Rectangle]] = defaultdict(list)
    for y, slot in enumerate(slots):
        for one in numbers.bars(slot, numbers.shortest_bar(row)):
            box = (one.begin / factor, y - _HEIGHT / 2, one.seconds / factor, _HEIGHT)
            boxes[look_of(one)].append(box)
    lanes = [(0.0, y - _HEIGHT / 2, seconds / factor, _HEIGHT) for y in range(len(slots))]
    charts.rectangles(axes, lanes, facecolor=IDLE, linewidth=0)
    every = [box for each in boxes.values() for box in each]
    charts.rectangles(axes, every, facecolor=_CARD, linewidth=0)  # shades are as in the legend
    edge = 0.6 if len(every) <= _FEW_BARS else 0
    for place, (name, look) in enumerate(looks):
        style = {"edgecolor": _CARD, "linewidth": edge, **look}
        charts.rectangles(axes, boxes[place] or [(0, 0, 0, 0)], **style, label=name)
    if shading is _prediction_shading:
        _draw_predicted_ends(axes, slots, factor)
    axes.set_xlabel(f"time since the round began [{unit}]")
    charts.legend(figure)
    return figure


def _draw_predicted_ends(axes: Axes, slots: Sequence[InSlot], factor: float) -> None:
    ends = [
        ((slot.trained[0].begin + predicted) / factor, y)
        for y, slot in enumerate(slots)
        if slot.trained and (predicted := numbers.predicted_of(slot)) is not None
    ]
    look: Look = {
        "color": INK,
        "markeredgecolor": _CARD,
        "markeredgewidth": 0.7,
        "linestyle": "none",
    }
    size = 5.5 if len(slots) <= charts.MOST_TICKS else 3.5
    x, y = [end for end, _ in ends], [lane for _, lane in ends]
    axes.plot(x, y, marker="D", markersize=size, label="predicted end", zorder=4, **look)


def _batch_shading(row: Placed) -> Shading:
    """Up to four shades of about as many clients each; the more batches, the darker."""
    sizes = sorted(x for slot in row.slots for x in slot.batches)
    tops = sorted({*sizes})
    if len(tops) > len(_SHADES):
        quarters = range(1, len(_SHADES) + 1)
        tops = sorted({sizes[-(-k * len(sizes) // len(_SHADES)) - 1] for k in quarters})
    lows = [min(x for x in sizes if x > before) for before in (-1, *tops[:-1])]
    names = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in zip(lows, tops, strict=True)]
    names[-1] += " batches"
    opacities = _SHADES[-len(tops) :] if len(tops) > 1 else (0.7,)
    looks = [
        (name, {"facecolor": HEAT.light, "alpha": each})
        for name, each in zip(names, opacities, strict=True)
    ]
    return looks, lambda one: sum(one.batches > top for top in tops[:-1])


_RATIOS = (1 / 1.5, 1 / 1.1, 1.1, 1.5)
_AS_PREDICTED: Sequence[tuple[str, Look]] = (
    ("under ⅔ of the prediction", {"facecolor": COLOURS[0], "alpha": 0.95, "hatch": "\\\\\\\\"}),
    ("less", {"facecolor": COLOURS[0], "alpha": 0.5, "hatch": "\\\\\\\\"}),
    ("within 10 %", {"facecolor": OTHER.light, "alpha": 0.42}),
    ("more", {"facecolor": COLOURS[1], "alpha": 0.5, "hatch": "////"}),
    ("over 1½ times", {"facecolor": COLOURS[1], "alpha": 0.95, "hatch": "////"}),
    ("not predicted", {"facecolor": _CARD, "edgecolor": SOFT, "linewidth": 0.6}),
)


def _prediction_shading(row: Placed) -> Shading:
    every = [one for slot in row.slots for one in slot.trained]
    looks = _AS_PREDICTED if not all(one.predicted for one in every) else _AS_PREDICTED[:-1]

    def look_of(one: Trained) -> int:
        if not one.predicted:
            return len(_RATIOS) + 1
        return sum(one.seconds / one.predicted > ratio for ratio in _RATIOS)

    return looks, look_of


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
