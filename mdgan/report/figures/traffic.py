"""What travels."""

from collections.abc import Callable, Mapping, Sequence

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import said_bytes, size_unit
from mdgan.report.figures.bars import heights, lying_bars
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.style import kind_style, legend, new_figure
from mdgan.report.numbers.operations import in_order
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table
from mdgan.report.numbers.traffic import KIND_ORDER, Rate, server_rate, worker_rate
from mdgan.report.numbers.units import a, unit_of

_LEAST_SHARE = 0.01
_WAYS = ("sent", "received")


def server_bytes(subjects: Sequence[Subject]) -> Picture | str:
    """Bytes an iteration or round of the server (figure 7.3)."""
    return _picture(subjects, server_rate)


def worker_bytes(subjects: Sequence[Subject]) -> Picture | str:
    """Bytes an iteration or round of one worker, mean over the workers (figure 7.4)."""
    return _picture(subjects, worker_rate)


def _picture(
    subjects: Sequence[Subject], rate_of: Callable[[RecordedRun], Rate | None]
) -> Picture | str:
    rates = [(s, rate_of(s.run)) for s in subjects if not s.standalone]
    found = [(subject, rate) for subject, rate in rates if rate is not None]
    if not found:
        alone = all(subject.standalone for subject in subjects)
        return "a standalone run sends nothing" if alone else "no bytes are counted yet"
    greatest = max(sum(way.values()) for _, rate in found for way in rate)
    factor, unit = size_unit([greatest])
    kinds = in_order({kind for _, rate in found for way in rate for kind in way}, KIND_ORDER)
    visible = [
        kind
        for kind in kinds
        if any(way.get(kind, 0.0) > _LEAST_SHARE * greatest for _, rate in found for way in rate)
    ]
    groups = [
        (
            subject.label if len(found) > 1 else "",
            [(name, _scaled(way, factor)) for name, way in zip(_WAYS, rate, strict=True)],
        )
        for subject, rate in found
    ]
    figure = new_figure(heights(groups) + 0.75)
    axes = figure.add_subplot()
    lying_bars(axes, groups, visible, kind_style)
    axes.set_xlabel(f"{unit} {a(unit_of([s for s, _ in found]))}")
    legend(figure)
    rows = [
        (
            f"{subject.label}, {name}",
            *(said_bytes(way.get(kind)) for kind in kinds),
            said_bytes(sum(way.values())),
        )
        for subject, rate in found
        for name, way in zip(_WAYS, rate, strict=True)
    ]
    seen = [
        f"{said_bytes(sum(rate.sent.values()))} sent and "
        f"{said_bytes(sum(rate.received.values()))} received {a(subject.unit)}"
        for subject, rate in found
    ]
    table = Table(("run and direction", *kinds, "together"), rows)
    return Picture([Panel("", figure)], only(seen), table)


def _scaled(sizes: Mapping[str, float], factor: float) -> dict[str, float]:
    return {kind: size / factor for kind, size in sizes.items()}
