"""How training waited for data, and the threads that read ahead."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from mdgan.records.rows import Fetching
from mdgan.records.values import chosen_evenly, count, said_seconds, time_unit
from mdgan.report.figures.charts import count_axis, iteration_axis, legend, new_figure
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import COLOURS, SOFT
from mdgan.report.numbers.subject import Subject

_MOST_ROWS = 12
_FEW = len(COLOURS)
_PARTS = ("wait for a batch", "threads", "pictures ahead")


def by_process(subject: Subject) -> dict[str, list[Fetching]]:
    """Role → what it told of its data, in order; empty if no data are read ahead."""
    found: dict[str, list[Fetching]] = {}
    for row in subject.run.of(Fetching):
        found.setdefault(row.role, []).append(row)
    return found


def waits(found: Sequence[tuple[Subject, dict[str, list[Fetching]]]]) -> Picture:
    """Latency, threads and buffer against iterations, a drawing each run."""
    rows = [
        (f"{subject.label}, {role}", f"{row.iteration:,}", said_seconds(row.mean_seconds),
         said_seconds(row.longest_seconds), f"{row.threads:,}", f"{row.buffer:,}")
        for subject, roles in found
        for role, told in roles.items()
        for row in chosen_evenly(told, max(2, _MOST_ROWS // len(roles)))
    ]  # fmt: skip
    header = ("run and process", "iteration", "mean wait", "longest", "threads", "pictures ahead")
    return one_each(found, _draw, _said, Table(header, rows))


def _said(_subject: Subject, roles: dict[str, list[Fetching]]) -> str:
    rows = [row for told in roles.values() for row in told]
    batches = sum(row.batches for row in rows)
    mean = sum(row.waited_seconds for row in rows) / batches
    longest = max(row.longest_seconds for row in rows)
    most = max(row.threads for row in rows)
    return (
        f"{said_seconds(mean)} a batch, {said_seconds(longest)} at most, "
        f"with up to {count(most, 'thread')}"
    )


def _draw(_subject: Subject, roles: dict[str, list[Fetching]]) -> Figure:
    figure = new_figure(4.2)
    axes = figure.subplots(3, 1, sharex=True)
    means = [row.mean_seconds for told in roles.values() for row in told]
    factor, unit = time_unit(means)
    for place, (role, told) in enumerate(roles.items()):
        colour = COLOURS[place % _FEW]
        look = {"color": colour, "alpha": 1.0 if len(roles) <= _FEW else 0.5, "linewidth": 1.2}
        x = [row.iteration for row in told]
        label = role if len(roles) <= _FEW else None
        axes[0].plot(x, [row.mean_seconds / factor for row in told], label=label, **look)
        axes[1].step(x, [row.threads for row in told], where="pre", **look)
        axes[2].step(x, [row.buffer for row in told], where="pre", **look)
    for part, title in zip(axes, (f"{_PARTS[0]} [{unit}]", *_PARTS[1:]), strict=True):
        part.set_title(title, color=SOFT)
        part.margins(x=0.02)
        count_axis(part, "") if part is not axes[0] else part.set_ylim(0, None)
    iteration_axis(axes[2])
    if len(roles) > 1:
        legend(figure)
    return figure
