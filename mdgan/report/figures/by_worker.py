"""Numbers of every worker that a family declares, against iterations."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import fmean

from matplotlib.figure import Figure

from mdgan.records.declared import WorkerNumbers
from mdgan.records.rows import Losses
from mdgan.records.values import said
from mdgan.report.figures.charts import draw_each, iteration_axis, legend, new_axes
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import INK
from mdgan.report.numbers.subject import Subject

OfWorkers = Mapping[int, Mapping[int, tuple[float, ...]]]
"""Worker → iteration → a number, or a mean and a greatest number."""


def numbers_of(numbers: WorkerNumbers) -> Callable[[Subject], OfWorkers]:
    """Finds what a run has recorded of them; nothing if it has not."""

    def find(subject: Subject) -> OfWorkers:
        found: dict[int, dict[int, tuple[float, ...]]] = {}
        for row in subject.run.of(Losses):
            for worker, values in row.numbers.get(numbers.key, {}).items():
                found.setdefault(worker, {})[row.iteration] = values
        return dict(sorted(found.items()))

    return find


def drawn(numbers: WorkerNumbers) -> Callable[[Sequence[tuple[Subject, OfWorkers]]], Picture]:
    """Draws a line for each worker, a drawing each run."""

    def draw(_subject: Subject, workers: OfWorkers) -> Figure:
        figure, axes = new_axes(2.6)
        draw_each(
            axes,
            {
                f"worker {worker}": {i: values[0] for i, values in series.items()}
                for worker, series in workers.items()
            },
        )
        if isfinite(numbers.alarm):
            axes.axhline(numbers.alarm, color=INK, linestyle="dashed", linewidth=1)
        axes.set(ylabel=numbers.label, ylim=(0, None))
        iteration_axis(axes)
        legend(figure)
        return figure

    def told(_subject: Subject, workers: OfWorkers) -> str:
        if isfinite(numbers.alarm):
            alarming = [str(n) for n, series in workers.items() if _since(series) is not None]
            found = f"found: {', '.join(alarming)}" if alarming else "none found"
            return f"{len(workers)} workers, {numbers.alarming}: {found}"
        means = [values[0] for series in workers.values() for values in series.values()]
        most = max(max(values) for series in workers.values() for values in series.values())
        return f"{said(fmean(means))} {numbers.label} in the mean, {said(most)} at most"

    def _since(series: Mapping[int, tuple[float, ...]]) -> int | None:
        return min((i for i, values in series.items() if values[0] >= numbers.alarm), default=None)

    def picture(found: Sequence[tuple[Subject, OfWorkers]]) -> Picture:
        rows = [
            (
                *(subject.label, f"worker {worker}"),
                said(fmean(values[0] for values in series.values())),
                said(max(max(values) for values in series.values())),
                *([said(_since(series), 9)] if isfinite(numbers.alarm) else []),
            )
            for subject, workers in found
            for worker, series in workers.items()
        ]
        since = [f"{numbers.alarming} since iteration"] if isfinite(numbers.alarm) else []
        table = Table(("run", "worker", f"{numbers.label}, mean", "most", *since), rows)
        return one_each(found, draw, told, table)

    return picture
