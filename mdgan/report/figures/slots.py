"""Where the clients of a round trained, and how long they took beside what was predicted."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from math import log
from statistics import fmean, median
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import InSlot, Place, Placed, Trained
from mdgan.records.values import chosen_evenly, said, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import OfRun, Row
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import HEAT, SURFACES
from mdgan.spelling import count

Look = dict[str, Any]  # a style for matplotlib

MOST_LANES = 64
_HEIGHT = 0.76
_FEW_BARS = 1200
_LONGEST_KIND = 36
_MOST_KINDS = 12
_MOST_STRATEGIES = 40
_CARD = SURFACES["card"].light
_SHADES = (0.27, 0.48, 0.72, 1.0)
_LEAST_SECONDS = 1e-9  # shorter times are no measurements


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.0f} %"


def short(text: str) -> str:
    """A text of a record on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_KIND else f"{line[: _LONGEST_KIND - 1]}…"


def name_of(place: Place) -> str:
    """Of a slot, beside its lane."""
    return f"host {place.host}, slot {place.number}"


# ----- one round


def typical_round(run: RecordedRun) -> Placed | None:
    """The round of median makespan in the second half of the run."""
    detailed = [row for row in run.of(Placed) if row.detailed]
    late = sorted(detailed[len(detailed) // 2 :], key=lambda row: row.makespan)
    return late[(len(late) - 1) // 2] if late else None


def idle_share(slot: InSlot, row: Placed) -> float:
    """The share of the makespan in which a slot did not train; 0 if there was none."""
    return max(0.0, 1 - slot.busy / row.makespan) if row.makespan else 0.0


def _predicted(slot: InSlot) -> float | None:
    """How long a slot was expected to train; None if a client of it has no prediction."""
    known = [one.predicted for one in slot.trained if one.predicted is not None]
    return sum(known) if known and len(known) == len(slot.clients) else None


def by_batches(subject: Subject) -> OfRun | None:
    """The clients that each slot trained in a typical round."""
    if (row := typical_round(subject.run)) is None:
        return None
    slots = chosen_evenly(sorted(row.slots, key=lambda slot: slot.place), MOST_LANES)
    rows = [
        (name_of(slot.place), short(slot.kind), f"{len(slot.clients):,}", f"{slot.work:,}",
         said_seconds(slot.busy), said_seconds(_predicted(slot)), percent(idle_share(slot, row)))
        for slot in slots
    ]  # fmt: skip
    idle = fmean(idle_share(slot, row) for slot in row.slots)
    num_clients = sum(len(slot.clients) for slot in row.slots)
    left_out = count(len(row.slots) - MOST_LANES, "more slot is", "more slots are")
    more = f"; only {MOST_LANES} fit, {left_out} left out" if len(row.slots) > MOST_LANES else ""
    summary = (
        f"round {row.number + 1:,}, placed by {short(row.strategy)}: "
        f"{count(num_clients, 'client')} in {count(len(row.slots), 'slot')}, "
        f"{said_seconds(row.makespan)}, {percent(idle)} of the slots' time idle{more}"
    )
    header = ("slot", "kind", "clients", "batches", "trained", "predicted", "idle")
    return OfRun(rows, summary, _draw_round(row, slots), header=header)


def _draw_round(row: Placed, slots: Sequence[InSlot]) -> Figure:
    ends = [one.begin + one.seconds for slot in row.slots for one in slot.trained]
    seconds = max([row.makespan, _LEAST_SECONDS, *ends])
    factor, unit = time_unit([seconds])
    figure, axes = _new_lanes([slot.place for slot in slots], seconds / factor)
    tops, names = _shades(row)
    boxes: list[list[charts.Rectangle]] = [[] for _ in names]
    for y, slot in enumerate(slots):
        for one in slot.trained:
            box = (one.begin / factor, y - _HEIGHT / 2, one.seconds / factor, _HEIGHT)
            boxes[sum(one.batches > top for top in tops[:-1])].append(box)
    lanes = [(0.0, y - _HEIGHT / 2, seconds / factor, _HEIGHT) for y in range(len(slots))]
    charts.rectangles(axes, lanes, facecolor=charts.IDLE, linewidth=0)
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
    """Up to four shades, each for about as many clients: its most batches, and its name."""
    sizes = sorted(x for slot in row.slots for x in slot.batches)
    tops = sorted({*sizes})
    if len(tops) > len(_SHADES):
        quarters = range(1, len(_SHADES) + 1)
        tops = sorted({sizes[-(-k * len(sizes) // len(_SHADES)) - 1] for k in quarters})
    lows = [min(x for x in sizes if x > before) for before in (-1, *tops[:-1])]
    names = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in zip(lows, tops, strict=True)]
    names[-1] += " batch" if names == ["1"] else " batches"
    return tops, names


def _new_lanes(places: Sequence[Place], length: float) -> tuple[Figure, Axes]:
    """A lane for each slot; if there are several kinds, a line between them, and their names."""
    names = [name_of(place) for place in places]
    height = 0.75 + max(0.1, min(0.3, 4 / len(names))) * len(names)
    figure, axes = charts.lane_chart(height, names, length)
    charts.some_names(axes.set_yticks, names)
    kinds = [(kind, len([*group])) for kind, group in groupby(place.kind for place in places)]
    ends = [sum(size for _, size in kinds[: n + 1]) - 0.5 for n in range(len(kinds))]
    if len(kinds) <= _MOST_KINDS:
        axes.hlines(ends[:-1], 0, length, color=charts.AXIS, linewidth=0.8)
    if len(kinds) > 1:
        middles = [(end - size / 2, kind) for end, (kind, size) in zip(ends, kinds, strict=True)]
        shown = chosen_evenly(middles, _MOST_KINDS)
        right = axes.secondary_yaxis("right")
        right.set_yticks([y for y, _ in shown], [short(kind) for _, kind in shown])
        right.spines["right"].set_visible(False)
    return figure, axes


# ----- predicted seconds


class Predicted(NamedTuple):
    """Predictions for clients in one kind of slot, by a curve a·x + b·log(x) + d of batches x."""

    curve: Sequence[float]  # a, b and d of the last curve
    residuals: Sequence[float]  # measured seconds less the curve's
    pairs: Sequence[tuple[float, float]]  # predicted and measured seconds


def predicted_by_kind(run: RecordedRun) -> dict[str, Predicted]:
    """Kind of slot → predictions for the clients that trained in one."""
    curves = {kind: curve for row in run.of(Placed) for kind, curve in row.fits.items()}
    trained: defaultdict[str, list[Trained]] = defaultdict(list)
    for row in run.of(Placed):
        for slot in row.slots:
            trained[slot.kind] += [one for one in slot.trained if one.seconds >= _LEAST_SECONDS]
    by_kind = {}
    for kind, clients in sorted(trained.items()):
        pairs = [
            (guess, one.seconds)
            for one in clients
            if (guess := one.predicted or 0.0) > _LEAST_SECONDS
        ]
        residuals = []
        if kind in curves:
            a, b, d = curves[kind]
            sizes = [(one.batches, one.seconds) for one in clients if one.batches >= 1]
            residuals = [seconds - (a * x + b * log(x) + d) for x, seconds in sizes]
        if pairs or residuals:
            by_kind[kind] = Predicted(curves.get(kind, ()) if residuals else (), residuals, pairs)
    return by_kind


def predictions(subject: Subject) -> OfRun | None:
    """How long clients took beside their predictions."""
    rows: list[Row] = []
    every: list[tuple[float, float]] = []
    for kind, (curve, residuals, pairs) in predicted_by_kind(subject.run).items():
        every += pairs
        fitted = (*map(said, curve), said_seconds(median(map(abs, residuals)))) if curve else "––––"
        ratios = [seconds / predicted for predicted, seconds in pairs]
        near = percent(fmean(1 / 1.1 <= ratio <= 1.1 for ratio in ratios)) if ratios else "–"
        error, ratio = (_error(pairs), f"{median(ratios):.2f}") if ratios else "––"
        rows.append((short(kind), f"{len(pairs):,}", error, near, ratio, *fitted))
    half = f"of half of the {len(every):,} clients"
    summary = f"{half} the prediction was less than {_error(every)} off" if every else ""
    header = (
        *("kind", "clients predicted", "error, median", "within 10 %", "measured / predicted"),
        *("a [s]", "b [s]", "d [s]", "residual, median"),
    )
    return OfRun(rows, summary, header=header) if rows else None


def _error(pairs: Sequence[tuple[float, float]]) -> str:
    return percent(median(abs(s - predicted) / s for predicted, s in pairs))


# ----- idle slots, and how many there are


def idle_shares(run: RecordedRun) -> dict[Place, dict[int, float]]:
    """Slot → number of the round, from 1 → the share of the makespan in which it did not train."""
    by_place: defaultdict[Place, dict[int, float]] = defaultdict(dict)
    for row in run.of(Placed):
        for slot in row.slots:
            by_place[slot.place][row.number + 1] = idle_share(slot, row)
    return dict(sorted(by_place.items()))


def idle_slots(subject: Subject) -> OfRun | None:
    """When slots trained no client; of each strategy the mean over its rounds."""
    rows = [
        (name_of(place), short(place.kind), f"{len(rounds):,}",
         percent(fmean(rounds.values())), percent(max(rounds.values())))
        for place, rounds in idle_shares(subject.run).items()
    ]  # fmt: skip
    by_strategy: defaultdict[str, list[float]] = defaultdict(list)
    for row in subject.run.of(Placed):
        if row.slots:
            by_strategy[row.strategy].append(fmean(idle_share(slot, row) for slot in row.slots))
    each = [
        f"{percent(fmean(shares))} in {count(len(shares), 'round')} of {short(strategy)}"
        for strategy, shares in chosen_evenly(sorted(by_strategy.items()), _MOST_STRATEGIES)
    ]
    header = ("slot", "kind", "rounds", "idle, mean", "idle, most")
    return OfRun(rows, f"idle in the mean: {', '.join(each)}", header=header) if rows else None


class Tried(NamedTuple):
    """How a host used a number of slots for some rounds in a row; rounds count from 1."""

    num_slots: int
    rounds: list[int]
    rates: list[float]


def climbs(run: RecordedRun) -> dict[int, list[Tried]]:
    """Host → the numbers of slots that it used, in order, if it used more than one."""
    used: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for row in run.of(Placed):
        work: defaultdict[int, int] = defaultdict(int)
        seconds: defaultdict[int, float] = defaultdict(float)
        for slot in row.slots:
            work[slot.host] += slot.work
            seconds[slot.host] = max(seconds[slot.host], slot.busy)
        for host, num_slots in row.num_slots.items():
            if work[host] and seconds[host] >= _LEAST_SECONDS:
                used[host].append((row.number + 1, num_slots, work[host] / seconds[host]))
    by_host: defaultdict[int, list[Tried]] = defaultdict(list)
    for host, rounds in sorted(used.items()):
        for num_slots, group in groupby(rounds, key=lambda entry: entry[1]):
            numbers, _, rates = zip(*group, strict=True)
            by_host[host].append(Tried(num_slots, [*numbers], [*rates]))
    return {host: tried for host, tried in by_host.items() if len(tried) > 1}


def numbers_of_slots(subject: Subject) -> OfRun | None:
    """The numbers of slots that hosts tried, and how fast each was."""
    hosts = climbs(subject.run)
    rows = [
        (f"host {host}", f"{one.num_slots:,}", f"{one.rounds[0]:,} to {one.rounds[-1]:,}",
         said(median(one.rates)))
        for host, tried in hosts.items()
        for one in tried
    ]  # fmt: skip
    gains = []
    for host, tried in list(hosts.items())[:8]:
        gain = median(tried[-1].rates) / median(tried[0].rates)
        numbers = f"{tried[0].num_slots} to {tried[-1].num_slots}"
        gains.append(f"host {host} went from {numbers} ({gain:.2f} ×)")
    summary = f"slots, and batches a second: {', '.join(gains)}"
    header = ("host", "slots", "rounds", "batches a second, median")
    return OfRun(rows, summary, header=header) if rows else None
