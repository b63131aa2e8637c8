"""What a run is counted in: iterations, or rounds of them."""

from collections.abc import Sequence

from mdgan.report.numbers.subject import Subject


def unit_of(subjects: Sequence[Subject]) -> str:
    """`iteration` or `round`, or both where runs of both kinds stand side by side."""
    return " or ".join(sorted({subject.unit for subject in subjects})) or "iteration"


def words(subjects: Sequence[Subject]) -> dict[str, str]:
    """What `{unit}`, `{Unit}`, `{units}` and `{a_unit}` stand for in titles and captions."""
    unit = unit_of(subjects)
    return {
        "unit": unit,
        "Unit": unit.capitalize(),
        "units": plural(unit),
        "a_unit": a(unit),
    }


def plural(unit: str) -> str:
    """`iterations`, `rounds` or `iterations or rounds`."""
    return " or ".join(f"{one}s" for one in unit.split(" or "))


def a(unit: str) -> str:
    """The unit with its article."""
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"
