"""ε from below, by canaries, beside what a run states."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from mdgan.records.audit import Bound
from mdgan.report.figures.charts import bar_chart
from mdgan.report.figures.picture import Picture, Row, Table, one_each
from mdgan.report.figures.style import COLOURS, SOFT
from mdgan.report.numbers.subject import Subject

_LEAST, _STATED = "at least, by canaries", "at most, stated"
_HEADER = ("run", "canaries", "kind", "guesses", "right", "ε at least", "with confidence",
           "ε stated")  # fmt: skip


def of_run(subject: Subject) -> Bound | None:
    """What its canaries say, if it had some."""
    return subject.run.audit.bound if subject.run.audit else None


def from_below(found: Sequence[tuple[Subject, Bound]]) -> Picture:
    """Two bars each run: what its ε is at least, and at most."""
    rows: list[Row] = [
        (
            *(subject.label, f"{bound.canaries:,}", bound.kind),
            *(f"{bound.guesses:,}", f"{bound.right:,}"),
            *(f"{bound.epsilon:.2f}", f"{100 * bound.confidence:.0f} %", f"{bound.stated:.3g}"),
        )
        for subject, bound in found
    ]

    def draw(_subject: Subject, bound: Bound) -> Figure:
        bars = [(_LEAST, {_LEAST: bound.epsilon}), (_STATED, {_STATED: bound.stated})]
        colours = {_LEAST: COLOURS[0], _STATED: SOFT}
        return bar_chart([("", bars)], list(colours), lambda part: {"color": colours[part]}, "ε")

    def told(_subject: Subject, bound: Bound) -> str:
        return f"lower bound: {bound}{'; the stated ε is wrong' if bound.contradicts else ''}"

    return one_each(found, draw, told, Table(_HEADER, rows))
