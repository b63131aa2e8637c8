"""What iterations, or rounds, are spent on: operations and bytes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from matplotlib.figure import Figure

from mdgan.records.values import count, said_bytes, said_seconds, size_unit, time_unit
from mdgan.report.figures.charts import bar_chart
from mdgan.report.figures.picture import Panel, Picture, Row, Table, only
from mdgan.report.figures.style import COLOURED, kind_style, operation_style
from mdgan.report.numbers import durations as numbers
from mdgan.report.numbers.subject import Subject, a
from mdgan.report.numbers.traffic import KIND_ORDER, Rate, server_rate, worker_rate

ORDER = tuple(dict.fromkeys(("generate", *numbers.WORKER_ORDER[:-3], *numbers.SERVER_ORDER)))
"""Of the operations of all roles, as they follow one another."""

_LEAST_SHARE = 0.01
_WAYS = ("sent", "received")
_SMALL = "other"
_WORKER = "a worker, mean"

Had = TypeVar("Had")
Of: TypeAlias = list[tuple[Subject, Had]]
"""Runs, and what is known of each."""


class Means(NamedTuple):
    """Seconds of an iteration or round by operation, the mean of so many."""

    seconds: Mapping[str, float]
    over: int


Spent: TypeAlias = Mapping[str, Means]
"""Role → where its time goes."""

Moved: TypeAlias = Mapping[str, Rate]
"""Role → what it moves."""


def time_spent(in_outliers: bool = False) -> Callable[[Subject], Spent]:
    """Means of the role with the generator and of a worker, over outliers or over all others."""

    def means(subject: Subject) -> Spent:
        chosen = subject.outliers if in_outliers else subject.ordinary
        found = {}
        if trace := subject.main_trace:
            seconds = numbers.role_operations(trace.spans, chosen)
            found[trace.role] = Means(seconds, len(chosen))
        found[_WORKER] = Means(*numbers.worker_operations(subject.hosts, chosen))
        return {role: one for role, one in found.items() if one.seconds}

    return means


def operations(found: Sequence[tuple[Subject, Spent]]) -> Picture:
    """For every role one bar an operation of one run, or one stacked bar a run of several."""
    names = numbers.in_order(
        {name for _, spent in found for means in spent.values() for name in means.seconds}, ORDER
    )
    rows: list[Row] = [
        (f"{subject.label}, {role}", *map(said_seconds, map(means.seconds.get, names)),
         said_seconds(sum(means.seconds.values())), f"{means.over:,}")
        for subject, spent in found
        for role, means in spent.items()
    ]  # fmt: skip
    panels = []
    for role, had in _by_role(found).items():
        label = f"mean time in {a(found[0][0].unit)}"
        said = only([_said_operations(subject, means) for subject, means in had])
        panels.append(Panel(role, _operations(had, names, label), said.rstrip(".")))
    table = Table(("run and role", *names, "together", f"{found[0][0].unit}s"), rows)
    return Picture(panels, "", table)


def _by_role(found: Sequence[tuple[Subject, Mapping[str, Had]]]) -> dict[str, Of[Had]]:
    """Role → the runs that have it, and what is known of it there."""
    roles = dict.fromkeys(role for _, had in found for role in had)
    return {role: [(s, had[role]) for s, had in found if role in had] for role in roles}


def _operations(had: Of[Means], names: Sequence[str], label: str) -> Figure:
    if len(had) == 1:
        seconds = had[0][1].seconds
        factor, unit = time_unit(seconds.values())
        there = [name for name in names if name in seconds]
        groups = [("", [(name, {name: seconds[name] / factor}) for name in there])]
    else:
        factor, unit = time_unit(sum(means.seconds.values()) for _, means in had)
        groups = [
            (subject.label, [("", {name: s / factor for name, s in means.seconds.items()})])
            for subject, means in had
        ]
    names = [name for name in names if any(name in means.seconds for _, means in had)]
    axis = f"{label} [{unit}]"
    return bar_chart(groups, names, operation_style, axis, with_legend=len(had) > 1)


def _said_operations(subject: Subject, means: Means) -> str:
    name, seconds = max(means.seconds.items(), key=lambda item: item[1])
    share = 100 * seconds / (sum(means.seconds.values()) or 1)
    over = count(means.over, subject.unit)
    return f"{name} takes longest, {said_seconds(seconds)} ({share:.0f} %), mean of {over}"


def bytes_moved(subject: Subject) -> Moved:
    """What the server and a worker of a run move in an average iteration or round."""
    rates = {"server": server_rate(subject.run), _WORKER: worker_rate(subject.run)}
    return {role: rate for role, rate in rates.items() if rate}


def moved_bytes(found: Sequence[tuple[Subject, Moved]]) -> Picture:
    """For every role bytes by direction and kind of message."""
    kinds = numbers.in_order(
        {kind for _, moved in found for rate in moved.values() for way in rate for kind in way},
        KIND_ORDER,
    )
    rows: list[Row] = [
        (f"{subject.label}, {role}, {name}", *map(said_bytes, map(way.get, kinds)),
         said_bytes(sum(way.values())))
        for subject, moved in found
        for role, rate in moved.items()
        for name, way in zip(_WAYS, rate, strict=True)
    ]  # fmt: skip
    panels = []
    for role, had in _by_role(found).items():
        sums = [[said_bytes(sum(way.values())) for way in rate] for _, rate in had]
        note = f"{sums[0][0]} sent, {sums[0][1]} received" if len(had) == 1 else ""
        panels.append(Panel(role, _bytes(had, kinds, a(found[0][0].unit)), note))
    return Picture(panels, "", Table(("run, role and direction", *kinds, "together"), rows))


def _bytes(had: Of[Rate], kinds: Sequence[str], a_unit: str) -> Figure:
    ways = [way for _, rate in had for way in rate]
    factor, unit = size_unit([max(sum(way.values()) for way in ways)])
    least = _LEAST_SHARE * max(sum(way.values()) for way in ways)
    shown = [k for k in kinds if k in COLOURED and any(way.get(k, 0.0) > least for way in ways)]

    def parts(way: Mapping[str, float]) -> dict[str, float]:
        seen = {kind: way[kind] / factor for kind in shown if kind in way}
        return {**seen, _SMALL: sum(way.values()) / factor - sum(seen.values())}

    groups = []
    for subject, rate in had:
        bars = [(name, parts(way)) for name, way in zip(_WAYS, rate, strict=True)]
        groups.append((subject.label if len(had) > 1 else "", bars))
    return bar_chart(groups, [*shown, _SMALL], kind_style, f"{unit} {a_unit}", with_legend=True)
