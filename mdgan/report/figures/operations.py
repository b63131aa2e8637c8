"""What iterations, or rounds, are spent on."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mdgan.records.values import count, said_seconds, time_unit
from mdgan.report.figures.charts import bar_chart
from mdgan.report.figures.picture import Picture, only, together
from mdgan.report.figures.style import operation_style
from mdgan.report.numbers import operations as numbers
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.units import a, plural, unit_of

ORDER = tuple(dict.fromkeys(("generate", *numbers.WORKER_ORDER[:-3], *numbers.SERVER_ORDER)))
"""Of the operations of all roles, as they follow one another."""


class Means(NamedTuple):
    """Where the time of a role goes.

    Attributes:
        seconds: of an iteration or round by operation, never empty.
        over: how many iterations or rounds it is the mean of.
    """

    seconds: Mapping[str, float]
    over: int


def of_generator(in_outliers: bool = False) -> Callable[[Subject], Means | None]:
    """Means of the role that owns the generator, over outliers or over all others."""

    def means(subject: Subject) -> Means | None:
        chosen = subject.outliers if in_outliers else subject.ordinary
        trace = subject.main_trace
        seconds = numbers.role_operations(trace.spans, chosen) if trace else {}
        return Means(seconds, len(chosen)) if seconds else None

    return means


def of_workers(in_outliers: bool = False) -> Callable[[Subject], Means | None]:
    """Means of one worker, over the workers, and over outliers or over all others."""

    def means(subject: Subject) -> Means | None:
        chosen = subject.outliers if in_outliers else subject.ordinary
        found = Means(*numbers.worker_operations(subject.hosts, chosen))
        return found if found.seconds else None

    return means


def operations(found: Sequence[tuple[Subject, Means]]) -> Picture:
    """One bar an operation for one run; one stacked bar a run for several."""
    names = numbers.in_order({name for _, means in found for name in means.seconds}, ORDER)
    if len(found) == 1:
        seconds = found[0][1].seconds
        factor, unit = time_unit(seconds.values())
        groups = [("", [(name, {name: seconds[name] / factor}) for name in names])]
    else:
        factor, unit = time_unit(sum(means.seconds.values()) for _, means in found)
        groups = [
            (subject.label, [("", {name: s / factor for name, s in means.seconds.items()})])
            for subject, means in found
        ]
    units = unit_of([subject for subject, _ in found])
    label = f"mean time in {a(units)} [{unit}]"
    figure = bar_chart(groups, names, operation_style, label, with_legend=len(found) > 1)
    rows = []
    for subject, means in found:
        cells = [*map(means.seconds.get, names), sum(means.seconds.values())]
        rows.append((subject.label, *map(said_seconds, cells), f"{means.over:,}"))
    header = ("run", *names, "together", plural(units))
    return together(figure, only([_said(*pair) for pair in found]), header, rows)


def _said(subject: Subject, means: Means) -> str:
    name, seconds = max(means.seconds.items(), key=lambda item: item[1])
    share = 100 * seconds / (sum(means.seconds.values()) or 1)
    over = count(means.over, subject.unit)
    return f"{name} takes longest, {said_seconds(seconds)} ({share:.0f} %), mean of {over}"
