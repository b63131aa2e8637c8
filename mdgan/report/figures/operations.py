"""What iterations are spent on."""

from collections.abc import Mapping, Sequence

from mdgan.records.values import count, said_seconds, time_unit
from mdgan.report.figures.bars import heights, lying_bars
from mdgan.report.figures.durations import NO_TRACE, nothing_slow
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.style import legend, new_figure, operation_style
from mdgan.report.numbers.operations import (
    SERVER_ORDER,
    STANDALONE_ORDER,
    WORKER_ORDER,
    in_order,
    role_operations,
    worker_operations,
)
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table
from mdgan.report.numbers.units import a, plural, unit_of

_NO_WORKERS = "the standalone baseline has no server and no workers"

Row = tuple[Subject, Mapping[str, float], int]
"""A run, seconds an iteration or round by operation, and over how many."""


def server_operations(subjects: Sequence[Subject]) -> Picture | str:
    """Mean time of each operation on the server (figure 7.6)."""
    return _main_role([s for s in subjects if not s.standalone], SERVER_ORDER, _NO_WORKERS)


def standalone_operations(subjects: Sequence[Subject]) -> Picture | str:
    """Mean time of each operation of the baseline (figure E.5)."""
    alone = [subject for subject in subjects if subject.standalone]
    return _main_role(alone, STANDALONE_ORDER, "no standalone run is in this report")


def server_operations_in_outliers(subjects: Sequence[Subject]) -> Picture | str:
    """Mean time of each operation on the server in the slowest iterations (figure 8.1)."""
    distributed = [subject for subject in subjects if not subject.standalone]
    if not distributed:
        return _NO_WORKERS
    if not any(subject.durations for subject in distributed):
        return NO_TRACE
    rows = [_main_row(subject, subject.outliers) for subject in distributed]
    return _picture([row for row in rows if row[1]], SERVER_ORDER) or nothing_slow(distributed)


def worker_operations_in_outliers(subjects: Sequence[Subject]) -> Picture | str:
    """Mean time of each operation on the workers in the slowest iterations (figure 8.2)."""
    return _workers(subjects, in_outliers=True)


def workers_operations(subjects: Sequence[Subject]) -> Picture | str:
    """Mean time of each operation on the workers (figure 7.7)."""
    return _workers(subjects, in_outliers=False)


def _main_role(subjects: Sequence[Subject], order: Sequence[str], nobody: str) -> Picture | str:
    if not subjects:
        return nobody
    rows = [_main_row(subject, subject.ordinary) for subject in subjects]
    return _picture([row for row in rows if row[1]], order) or NO_TRACE


def _main_row(subject: Subject, iterations: set[int]) -> Row:
    trace = subject.main_trace
    means = role_operations(trace.spans, iterations) if trace else {}
    return subject, means, len(iterations)


def _workers(subjects: Sequence[Subject], in_outliers: bool) -> Picture | str:
    distributed = [subject for subject in subjects if not subject.standalone]
    if not distributed:
        return _NO_WORKERS
    if not any(subject.hosts for subject in distributed):
        return "no trace of a host is there"
    rows = []
    for subject in distributed:
        chosen = subject.outliers if in_outliers else subject.ordinary
        means, recorded = worker_operations(subject.hosts, chosen)
        if means:
            rows.append((subject, means, recorded))
    nothing = (
        f"{nothing_slow(distributed)} while workers were recorded" if in_outliers else NO_TRACE
    )
    return _picture(rows, WORKER_ORDER) or nothing


def _picture(rows: Sequence[Row], order: Sequence[str]) -> Picture | None:
    """One bar an operation for one run; one stacked bar a run for several."""
    if not rows:
        return None
    names = in_order({name for _, means, _ in rows for name in means}, order)
    if len(rows) == 1:
        means = rows[0][1]
        factor, unit = time_unit(means.values())
        groups = [("", [(name, {name: means[name] / factor}) for name in names])]
    else:
        factor, unit = time_unit(sum(means.values()) for _, means, _ in rows)
        groups = [
            (subject.label, [("", {name: seconds / factor for name, seconds in means.items()})])
            for subject, means, _ in rows
        ]
    figure = new_figure(heights(groups) + (0.45 if len(rows) == 1 else 0.85))
    axes = figure.add_subplot()
    lying_bars(axes, groups, names, operation_style)
    axes.set_xlabel(f"mean time in {a(unit_of([s for s, _, _ in rows]))} [{unit}]")
    if len(rows) > 1:
        legend(figure)
    return Picture([Panel("", figure)], only([_said(row) for row in rows]), _table(rows, names))


def _said(row: Row) -> str:
    subject, means, iterations = row
    name = max(means, key=lambda operation: means[operation])
    total = sum(means.values())
    share = f"{100 * means[name] / total:.0f} %" if total else "0 %"
    over = count(iterations, subject.unit)
    return f"{name} takes longest, {said_seconds(means[name])} ({share}), mean of {over}"


def _table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    cells = [
        (
            subject.label,
            *(said_seconds(means.get(name)) for name in names),
            said_seconds(sum(means.values())),
            f"{iterations:,}",
        )
        for subject, means, iterations in rows
    ]
    counted = plural(unit_of([subject for subject, _, _ in rows]))
    return Table(("run", *names, "together", counted), cells)
