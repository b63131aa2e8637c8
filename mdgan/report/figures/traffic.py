"""What travels."""

from collections.abc import Sequence

from mdgan.records.values import said_bytes, size_unit
from mdgan.report.figures.charts import bar_chart
from mdgan.report.figures.picture import Picture, only, together
from mdgan.report.figures.style import kind_style
from mdgan.report.numbers.operations import in_order
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.traffic import KIND_ORDER, Rate
from mdgan.report.numbers.units import a, unit_of

_LEAST_SHARE = 0.01
_WAYS = ("sent", "received")


def moved_bytes(found: Sequence[tuple[Subject, Rate]]) -> Picture:
    """Bytes by direction and kind of message."""
    ways = [way for _, rate in found for way in rate]
    greatest = max(sum(way.values()) for way in ways)
    factor, unit = size_unit([greatest])
    kinds = in_order({kind for way in ways for kind in way}, KIND_ORDER)
    least = _LEAST_SHARE * greatest
    visible = [kind for kind in kinds if any(way.get(kind, 0.0) > least for way in ways)]
    groups = [
        (
            subject.label if len(found) > 1 else "",
            [
                (name, {kind: size / factor for kind, size in way.items()})
                for name, way in zip(_WAYS, rate, strict=True)
            ],
        )
        for subject, rate in found
    ]
    label = f"{unit} {a(unit_of([subject for subject, _ in found]))}"
    figure = bar_chart(groups, visible, kind_style, label, with_legend=True)
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
    return together(figure, only(seen), ("run and direction", *kinds, "together"), rows)
