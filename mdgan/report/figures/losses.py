"""The losses of both players."""

from collections.abc import Sequence

from mdgan.records.values import chosen_evenly, number_in, said
from mdgan.report.figures.picture import Panel, Picture
from mdgan.report.figures.style import (
    SOFT,
    iteration_axis,
    legend,
    line_style,
    new_figure,
    run_colour,
)
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table

_MOST_STRETCHES = 300
_MOST_ROWS = 30
_PLAYERS = {"generator_loss": "generator", "discriminator_loss": "discriminators, mean"}


def losses(subjects: Sequence[Subject]) -> Picture | str:
    """Generator and mean discriminator loss against iterations."""
    series = {(s.position, name): _series(s, name) for s in subjects for name in _PLAYERS}
    if not any(series.values()):
        return "no iteration is recorded yet"
    figure = new_figure(3.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, (name, title) in zip((upper, lower), _PLAYERS.items(), strict=True):
        for subject in subjects:
            thin = envelope(series[subject.position, name], _MOST_STRETCHES)
            if len(series[subject.position, name]) > _MOST_STRETCHES:
                colour = run_colour(subject)
                axes.fill_between(thin.x, thin.low, thin.high, color=colour, alpha=0.2, linewidth=0)
            style = line_style(subject, len(thin.x))
            axes.plot(thin.x, thin.middle, **style, linewidth=1.2, label=subject.label)
        axes.set_title(title, color=SOFT)
        axes.margins(x=0.02)
    iteration_axis(lower)
    if len(subjects) > 1:
        legend(figure, upper)
    gone = [
        f"{subject.label}: a loss was not finite"
        for subject in subjects
        if any(
            name in record and record[name] is None
            for record in subject.run.iterations
            for name in _PLAYERS
        )
    ]
    rows = [
        (subject.label, f"{i:,}", *(said(series[subject.position, n].get(i)) for n in _PLAYERS))
        for subject in subjects
        for i in chosen_evenly(
            sorted(series[subject.position, "generator_loss"]), _MOST_ROWS // len(subjects) + 2
        )
    ]
    table = Table(("run", "iteration", *_PLAYERS.values()), rows)
    return Picture([Panel("", figure)], f"{'; '.join(gone)}." if gone else "", table)


def _series(subject: Subject, name: str) -> dict[int, float]:
    found = {}
    for record in subject.run.iterations:
        iteration, value = number_in(record, "iteration"), number_in(record, name)
        if iteration is not None and value is not None:
            found[int(iteration)] = value
    return found
