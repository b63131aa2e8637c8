"""The line and marker by which a run is known in every figure."""

from mdgan.report.numbers.subject import Subject
from mdgan.report.page.html import tag
from mdgan.report.palette import RUNS

_DASHES = ("", "7 3", "2 2", "8 3 2 3")
_MARKERS = (
    '<circle cx="17" cy="7" r="3.6"/>',
    '<rect x="13.6" y="3.6" width="6.8" height="6.8"/>',
    '<path d="M17 2.6 21 10.6H13z"/>',
    '<path d="M17 2 21.6 7 17 12 12.4 7z"/>',
    '<path d="M17 11.4 13 3.4h8z"/>',
    '<path d="M15.6 3h2.8v2.6H21v2.8h-2.6V11h-2.8V8.4H13V5.6h2.6z"/>',
    '<path d="m14 2.5 3 3 3-3 1.6 1.6-3 3 3 3-1.6 1.6-3-3-3 3-1.6-1.6 3-3-3-3z"/>',
    '<path d="m17 2 1.4 3.4 3.6.3-2.8 2.3.9 3.6-3.1-2-3.1 2 .9-3.6L12 5.7l3.6-.3z"/>',
)


def swatch(subject: Subject) -> str:
    """An inline picture of a run's line."""
    names = list(RUNS)
    colour = f"var(--{names[subject.position % len(names)]})"
    dashes = _DASHES[subject.position % len(_DASHES)]
    line = f'<path d="M0 7h34" style="stroke:{colour};stroke-width:2;stroke-dasharray:{dashes}"/>'
    marker = f'<g style="fill:{colour}">{_MARKERS[subject.position % len(_MARKERS)]}</g>'
    return tag(
        "svg",
        line + marker,
        class_="swatch",
        viewBox="0 0 34 14",
        width="34",
        height="14",
        aria_hidden="true",
    )
