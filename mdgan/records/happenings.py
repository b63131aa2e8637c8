"""What a run records of workers that come, go, or do not answer."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

BEGAN, RESUMED = "holdings", "resumed"
JOINED, LEFT, LOST, SHUT_OUT = "joined", "left", "lost", "shut out"
LATE, BACK, REFUSED = "late", "back", "refused"
_KINDS = (BEGAN, RESUMED, JOINED, LEFT, LOST, SHUT_OUT, LATE, BACK, REFUSED)

_LONGEST_SECONDS = 1e12
_MOST_ITERATIONS = 1 << 53
_MOST_DIGITS = 9  # of the number of a worker


class Happening(NamedTuple):
    """One thing that happened to some workers.

    Attributes:
        kind: one of the names above.
        iteration: in which, or after which; 0 before the first.
        workers: to whom, in increasing order; after `holdings` and `resumed` nobody else is there.
        reason: in words, where there is one.
        classes: how many samples of each class workers hold, where it is told.
        seconds: since training began; None if it was not recorded.
    """

    kind: str
    iteration: int
    workers: tuple[int, ...]
    reason: str
    classes: Mapping[int, list[int]]
    seconds: float | None


def happening(record: Mapping[str, Any]) -> Happening | None:
    """What a line of `metrics.jsonl` tells of workers; None if it tells nothing, or no sense."""
    kind, iteration = record.get("event"), record.get("iteration")
    if kind not in _KINDS or type(iteration) is not int or not 0 <= iteration < _MOST_ITERATIONS:
        return None
    told = record.get("workers", [record.get("worker")])
    workers = sorted({*_numbers(told if isinstance(told, list) else _keys(told))})
    if not workers and kind not in (BEGAN, RESUMED):
        return None
    return Happening(
        kind=str(kind),
        iteration=iteration,
        workers=tuple(workers),
        reason=str(record.get("reason", "")),
        classes=_classes(record.get("holdings", told)),
        seconds=_seconds(record.get("seconds")),
    )


def happenings(records: Iterable[Mapping[str, Any]]) -> list[Happening]:
    """What happened to workers, in order."""
    return [found for record in records if (found := happening(record)) is not None]


def _keys(told: Any) -> list[Any]:
    names = list(told) if isinstance(told, Mapping) else []
    return [int(name) for name in names if name.isdecimal() and len(name) <= _MOST_DIGITS]


def _numbers(told: Iterable[Any]) -> list[int]:
    return [number for number in told if type(number) is int and 0 < number < 10**_MOST_DIGITS]


def _classes(held: Any) -> dict[int, list[int]]:
    found = {}
    for name in held if isinstance(held, Mapping) else ():
        what = held[name]
        counts = what.get("classes") if isinstance(what, Mapping) else None
        if name.isdecimal() and len(name) <= _MOST_DIGITS and isinstance(counts, list):
            found[int(name)] = [count if type(count) is int else 0 for count in counts]
    return found


def _seconds(told: Any) -> float | None:
    return float(told) if isinstance(told, int | float) and 0 <= told < _LONGEST_SECONDS else None
