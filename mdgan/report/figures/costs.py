"""Figures of costs: time by operation, bytes, memory and waiting for data."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, TypeAlias, TypeVar

from matplotlib.figure import Figure

from mdgan.records import values
from mdgan.records.roles import first_worker
from mdgan.records.rows import OPERATORS, Fetching, Profile
from mdgan.report.figures.charts import COLOURED, bar_chart, kind_style, operation_style
from mdgan.report.figures.picture import OfRun, Panel, Picture, Row, Table, only
from mdgan.report.numbers import durations as numbers
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.traffic import KIND_ORDER, Rate, server_rate, worker_rate
from mdgan.spelling import count

ORDER = tuple(dict.fromkeys(("generate", *numbers.WORKER_ORDER[:-3], *numbers.SERVER_ORDER)))
"""The operations of all roles, in the order in which they occur."""

_LEAST_SHARE = 0.01
_WAYS = ("sent", "received")
_SMALL = "other"
_WORKER, _HOST = "a worker, mean", "a host, mean"
_MOST_ROWS = 40

Had = TypeVar("Had")
Of: TypeAlias = list[tuple[Subject, Had]]  # runs with their numbers


class Means(NamedTuple):
    """Mean seconds of an iteration or round by operation, `over` this many."""

    seconds: Mapping[str, float]
    over: int


Spent: TypeAlias = Mapping[str, Means]  # role → its seconds by operation

Moved: TypeAlias = Mapping[str, Rate]  # role → its bytes


def time_spent(in_outliers: bool = False) -> Callable[[Subject], Spent]:
    """Means of the role with the generator and of a worker, over outliers or over all others."""

    def means(subject: Subject) -> Spent:
        chosen = subject.outliers if in_outliers else subject.ordinary
        recorded = {}
        if trace := subject.main_trace:
            seconds = numbers.role_operations(trace.spans, chosen)
            recorded[trace.role] = Means(seconds, len(chosen))
        recorded[_WORKER] = Means(*numbers.worker_operations(subject.hosts, chosen))
        return {role: one for role, one in recorded.items() if one.seconds}

    return means


def operations(recorded: Sequence[tuple[Subject, Spent]]) -> Picture:
    """For every role a bar for each operation of the only run, or a stacked bar for each run."""
    names = numbers.in_order(
        {name for _, spent in recorded for means in spent.values() for name in means.seconds}, ORDER
    )
    rows: list[Row] = [
        (f"{subject.label}, {role}", *map(values.said_seconds, map(means.seconds.get, names)),
         values.said_seconds(sum(means.seconds.values())), f"{means.over:,}")
        for subject, spent in recorded
        for role, means in spent.items()
    ]  # fmt: skip
    panels = []
    for role, had in _by_role(recorded).items():
        label = f"mean time in {values.a(recorded[0][0].unit)}"
        said = only([_said_operations(subject, means) for subject, means in had])
        panels.append(Panel(role, _operations(had, names, label), said.rstrip(".")))
    table = Table(("run and role", *names, "together", f"{recorded[0][0].unit}s"), rows)
    return Picture(panels, "", table)


def _by_role(recorded: Sequence[tuple[Subject, Mapping[str, Had]]]) -> dict[str, Of[Had]]:
    """Role → the runs that have it, with its numbers."""
    roles = dict.fromkeys(role for _, had in recorded for role in had)
    return {role: [(s, had[role]) for s, had in recorded if role in had] for role in roles}


def _operations(had: Of[Means], names: Sequence[str], label: str) -> Figure:
    if len(had) == 1:
        seconds = had[0][1].seconds
        factor, unit = values.time_unit(seconds.values())
        there = [name for name in names if name in seconds]
        groups = [("", [(name, {name: seconds[name] / factor}) for name in there])]
    else:
        factor, unit = values.time_unit(sum(means.seconds.values()) for _, means in had)
        groups = [
            (subject.label, [("", {name: s / factor for name, s in means.seconds.items()})])
            for subject, means in had
        ]
    names = [name for name in names if any(name in means.seconds for _, means in had)]
    axis = f"{label} [{unit}]"
    return bar_chart(groups, names, operation_style, label=axis, with_legend=len(had) > 1)


def _said_operations(subject: Subject, means: Means) -> str:
    name, seconds = max(means.seconds.items(), key=lambda item: item[1])
    share = 100 * seconds / (sum(means.seconds.values()) or 1)
    over = count(means.over, subject.unit)
    return f"{name} takes longest, {values.said_seconds(seconds)} ({share:.0f} %), mean of {over}"


def bytes_moved(subject: Subject) -> Moved:
    """What the server and a worker of a run move in an average iteration or round."""
    rates = {"server": server_rate(subject.run), _WORKER: worker_rate(subject.run)}
    return {role: rate for role, rate in rates.items() if rate}


def moved_bytes(recorded: Sequence[tuple[Subject, Moved]]) -> Picture:
    """For every role bytes by direction and kind of message."""
    kinds = numbers.in_order(
        {kind for _, moved in recorded for rate in moved.values() for way in rate for kind in way},
        KIND_ORDER,
    )
    rows: list[Row] = [
        (f"{subject.label}, {role}, {name}", *map(values.said_bytes, map(way.get, kinds)),
         values.said_bytes(sum(way.values())))
        for subject, moved in recorded
        for role, rate in moved.items()
        for name, way in zip(_WAYS, rate, strict=True)
    ]  # fmt: skip
    panels = []
    for role, had in _by_role(recorded).items():
        sums = [[values.said_bytes(sum(way.values())) for way in rate] for _, rate in had]
        note = f"{sums[0][0]} sent, {sums[0][1]} received" if len(had) == 1 else ""
        panels.append(Panel(role, _bytes(had, kinds, values.a(recorded[0][0].unit)), note))
    return Picture(panels, "", Table(("run, role and direction", *kinds, "together"), rows))


def _bytes(had: Of[Rate], kinds: Sequence[str], a_unit: str) -> Figure:
    ways = [way for _, rate in had for way in rate]
    factor, unit = values.size_unit([max(sum(way.values()) for way in ways)])
    least = _LEAST_SHARE * max(sum(way.values()) for way in ways)
    shown = [k for k in kinds if k in COLOURED and any(way.get(k, 0.0) > least for way in ways)]

    def parts(way: Mapping[str, float]) -> dict[str, float]:
        seen = {kind: way[kind] / factor for kind in shown if kind in way}
        return {**seen, _SMALL: sum(way.values()) / factor - sum(seen.values())}

    groups = []
    for subject, rate in had:
        bars = [(name, parts(way)) for name, way in zip(_WAYS, rate, strict=True)]
        groups.append((subject.label if len(had) > 1 else "", bars))
    return bar_chart(
        groups, [*shown, _SMALL], kind_style, label=f"{unit} {a_unit}", with_legend=True
    )


# ----- numbers that stand in tables alone


def memory(subject: Subject) -> OfRun | None:
    """What each process of a run held at one time after another; the server first."""

    def place(role: str) -> tuple[bool, int, str]:
        return role != "server", first_worker(role), role

    traces = subject.run.traces
    roles = {role: sizes for role in sorted(traces, key=place) if (sizes := traces[role].memory)}
    rows = [
        (role, *map(values.said_bytes, (sizes[0], max(sizes), sizes[-1])))
        for role, sizes in roles.items()
    ]
    summary = f"{values.said_bytes(sum(map(max, roles.values())))} in all"
    header = ("process", "at first", "most", "at the end")
    return OfRun(rows, summary, header=header) if rows else None


def fetching(subject: Subject) -> OfRun | None:
    """How long training waited for data; None if no process read any ahead."""
    if not (rows := subject.run.of(Fetching)):
        return None
    roles: dict[str, list[Fetching]] = {}
    for row in rows:
        roles.setdefault(row.role, []).append(row)
    table = [
        (role, f"{row.iteration:,}", values.said_seconds(row.waited_seconds / row.batches),
         values.said_seconds(row.longest_seconds), f"{row.threads:,}", f"{row.buffer:,}")
        for role, every in roles.items()
        for row in values.chosen_evenly(every, max(2, _MOST_ROWS // len(roles)))
    ]  # fmt: skip
    threads = count(max(row.threads for row in rows), "thread")
    mean = sum(row.waited_seconds for row in rows) / sum(row.batches for row in rows)
    longest = values.said_seconds(max(row.longest_seconds for row in rows))
    summary = f"{values.said_seconds(mean)} a batch, {longest} at most, with up to {threads}"
    header = ("process", "iteration", "mean wait", "longest", "threads", "pictures ahead")
    return OfRun(table, summary, header=header)


def operators(subject: Subject) -> OfRun | None:
    """What the role with the generator computes, and hosts in the mean; None without a profile."""
    last = {row.role: row for row in subject.run.of(Profile) if sum(row.operators.values()) > 0}
    groups: dict[str, list[Profile]] = {}
    for role, row in sorted(last.items(), key=lambda item: first_worker(item[0])):
        groups.setdefault(_HOST if first_worker(role) else role, []).append(row)
    rows, summary = [], []
    for role, members in groups.items():
        shares: dict[str, float] = numbers.summed(
            (kind, seconds / sum(row.operators.values()) / len(members))
            for row in members
            for kind, seconds in row.operators.items()
        )
        known = [row.gpu for row in members if row.gpu is not None]
        gpu = f"{100 * fmean(known):.0f} %" if known else "–"
        busy = f"{fmean(row.busy_cores for row in members):.2f} of {members[0].cores}"
        iterations = f"{members[0].first:,} to {members[0].last:,}"
        each = (f"{100 * shares.get(kind, 0.0):.1f} %" for kind in OPERATORS)
        rows.append((role, iterations, *each, busy, gpu))
        kind = max(shares, key=shares.__getitem__)
        more = f" and its GPU {gpu} of the time" if known else ""
        summary.append(f"{role}: {100 * shares[kind]:.0f} % {kind}, {busy} cores busy{more}")
    header = ("role", "iterations", *OPERATORS, "cores busy", "GPU busy")
    return OfRun(rows, "; ".join(summary), header=header) if rows else None
