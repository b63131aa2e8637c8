"""The losses of both players."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mdgan.records.values import chosen_evenly, number_in, said
from mdgan.report.figures.charts import draw_line, iteration_axis, legend, new_figure
from mdgan.report.figures.picture import Picture, together
from mdgan.report.figures.style import SOFT
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.subject import Subject

_MOST_STRETCHES = 300
_MOST_ROWS = 30
_PLAYERS = {"generator_loss": "generator", "discriminator_loss": "discriminators, mean"}

Series: TypeAlias = Mapping[str, Mapping[int, float]]
"""Name of a loss → iteration → its value."""


def loss_series(subject: Subject) -> Series | None:
    """The losses of a run; None if it recorded none."""
    series: dict[str, dict[int, float]] = {name: {} for name in _PLAYERS}
    for record in subject.run.iterations:
        for name in _PLAYERS:
            iteration, value = number_in(record, "iteration"), number_in(record, name)
            if iteration is not None and value is not None:
                series[name][int(iteration)] = value
    return series if any(series.values()) else None


def losses(found: Sequence[tuple[Subject, Series]]) -> Picture:
    """Generator and mean discriminator loss against iterations."""
    figure = new_figure(3.6)
    both = figure.subplots(2, 1, sharex=True)
    for axes, (name, title) in zip(both, _PLAYERS.items(), strict=True):
        for subject, series in found:
            thin = envelope(series[name], _MOST_STRETCHES)
            draw_line(axes, subject, subject.label, thin, linewidth=1.2)
        axes.set_title(title, color=SOFT)
        axes.margins(x=0.02)
    iteration_axis(both[1])
    if len(found) > 1:
        legend(figure, both[0])
    gone = [f"{s.label}: a loss was not finite" for s, _ in found if _is_not_finite(s)]
    rows = [
        (subject.label, f"{i:,}", *(said(series[name].get(i)) for name in _PLAYERS))
        for subject, series in found
        for i in chosen_evenly(sorted(series["generator_loss"]), _MOST_ROWS // len(found) + 2)
    ]
    seen = f"{'; '.join(gone)}." if gone else ""
    return together(figure, seen, ("run", "iteration", *_PLAYERS.values()), rows)


def _is_not_finite(subject: Subject) -> bool:
    """Whether a loss was recorded as null, which stands for what JSON has no number for."""
    records = subject.run.iterations
    return any(name in record and record[name] is None for record in records for name in _PLAYERS)
