"""What iterations, or rounds, are spent on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from mdgan.records.values import count, said_seconds, time_unit
from mdgan.report.figures.charts import bar_chart
from mdgan.report.figures.picture import Picture, only, together
from mdgan.report.figures.style import operation_style
from mdgan.report.numbers.operations import (
    SERVER_ORDER,
    STANDALONE_ORDER,
    WORKER_ORDER,
    in_order,
    role_operations,
    worker_operations,
)
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.units import a, plural, unit_of

ORDER = tuple(dict.fromkeys(STANDALONE_ORDER[:4] + SERVER_ORDER + WORKER_ORDER))
"""Of the operations of all roles."""


class Means(NamedTuple):
    """Where the time of a role goes.

    Attributes:
        seconds: of an iteration or round by operation, never empty.
        over: how many iterations or rounds it is the mean of.
    """

    seconds: Mapping[str, float]
    over: int


Chosen = Callable[[Subject], Collection[int]]
"""Which iterations of a run count."""


def ordinary(subject: Subject) -> Collection[int]:
    """The iterations that are no outliers."""
    return subject.ordinary


def outliers(subject: Subject) -> Collection[int]:
    """The iterations that took unusually long."""
    return subject.outliers


def of_generator(chosen: Chosen) -> Callable[[Subject], Means | None]:
    """Means of the role that owns the generator, over some iterations."""

    def means(subject: Subject) -> Means | None:
        trace, iterations = subject.main_trace, chosen(subject)
        seconds = role_operations(trace.spans, iterations) if trace else {}
        return Means(seconds, len(iterations)) if seconds else None

    return means


def of_workers(chosen: Chosen) -> Callable[[Subject], Means | None]:
    """Means of one worker, over the workers and some iterations."""

    def means(subject: Subject) -> Means | None:
        found = Means(*worker_operations(subject.hosts, chosen(subject)))
        return found if found.seconds else None

    return means


def operations(found: Sequence[tuple[Subject, Means]]) -> Picture:
    """One bar an operation for one run; one stacked bar a run for several."""
    names = in_order({name for _, means in found for name in means.seconds}, ORDER)
    if len(found) == 1:
        ((_, means),) = found
        factor, unit = time_unit(means.seconds.values())
        groups = [("", [(name, {name: means.seconds[name] / factor}) for name in names])]
    else:
        factor, unit = time_unit(sum(means.seconds.values()) for _, means in found)
        groups = [
            (subject.label, [("", {name: s / factor for name, s in means.seconds.items()})])
            for subject, means in found
        ]
    units = unit_of([subject for subject, _ in found])
    label = f"mean time in {a(units)} [{unit}]"
    figure = bar_chart(groups, names, operation_style, label, with_legend=len(found) > 1)
    rows = [
        (
            subject.label,
            *(said_seconds(means.seconds.get(name)) for name in names),
            said_seconds(sum(means.seconds.values())),
            f"{means.over:,}",
        )
        for subject, means in found
    ]
    header = ("run", *names, "together", plural(units))
    return together(figure, only([_said(*pair) for pair in found]), header, rows)


def _said(subject: Subject, means: Means) -> str:
    name, seconds = max(means.seconds.items(), key=lambda item: item[1])
    total = sum(means.seconds.values())
    share = f"{100 * seconds / total:.0f} %" if total else "0 %"
    over = count(means.over, subject.unit)
    return f"{name} takes longest, {said_seconds(seconds)} ({share}), mean of {over}"
