"""Takes numbers out of records that may lack them, and formats numbers for people."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import floor, isfinite, log10
from typing import Any, TypeVar

Item = TypeVar("Item")


def number(value: Any) -> float | None:
    """The value if it is a finite number, or else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None


def number_in(record: Mapping[str, Any], key: str) -> float | None:
    """The finite number under a key, or None."""
    return number(record.get(key))


def passed(interval: int, before: int, now: int) -> bool:
    """Whether a multiple of an interval lies after iteration `before` and up to `now`."""
    return interval > 0 and now // interval > before // interval


def chosen_evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly spaced, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """The best unit for the largest of some times: its length in seconds, and its name."""
    largest = max(seconds, default=0.0)
    units = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
    fits = (unit for unit in units if largest >= unit[0] * (2 if unit[0] > 1 else 1))
    return next(fits, (1e-6, "µs"))


def size_unit(sizes: Iterable[float]) -> tuple[float, str]:
    """The best unit for the largest of some sizes: its size in bytes, and its name."""
    largest = max(sizes, default=0.0)
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))
    return next((unit for unit in units if largest >= unit[0]), (1.0, "bytes"))


def said(value: float | None, digits: int = 3) -> str:
    """Formats a number to some significant digits, `1,234` or `0.0123`; None is a dash."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return f"{value:.{digits + 3}f}".rstrip("0") if "e" in text and abs(value) > 1e-5 else text


def measured(value: float) -> str:
    """Formats a number with three digits, at most two of them decimals: `0.01`, `1.20`, `164`."""
    decimals = max(0, min(2, 2 - floor(log10(value)))) if value > 0 else 0
    return f"{value:,.{decimals}f}"


def shown(value: Any) -> str:
    """Formats a setting's value for people."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value)


def said_seconds(seconds: float | None) -> str:
    """A time with its unit: `12.3 ms`."""
    if seconds is None:
        return "–"
    factor, unit = time_unit([seconds])
    return f"{measured(seconds / factor)} {unit}"


def said_bytes(size: float | None) -> str:
    """A size with its unit: `1.2 MB`."""
    if size is None:
        return "–"
    factor, unit = size_unit([size])
    return f"{measured(size / factor) if factor > 1 else said(size)} {unit}"


def brief_seconds(seconds: float) -> str:
    """A time for a narrow column: `12.3 ms`, `1.5 s`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def brief_size(size: float) -> str:
    """A size for a narrow column, with powers of 1000: `64 kB`, `1.28 MB`."""
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB" if size < 999.5 else f"{size:,.0f} GB"


def said_list(items: Sequence[Any], most: int = 12) -> str:
    """Joins items by commas; shows at most `most` of them, and how many there are."""
    more = f" … ({len(items)} in all)" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


def said_range(numbers: Sequence[int]) -> str:
    """The least and the greatest of some whole numbers: `3 to 1,200`, or `3` if they are equal."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def a(unit: str) -> str:
    """A unit with its article: `an iteration`, `a round`."""
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"


def said_left_out(left_out: Mapping[str, str], names: Mapping[str, str] | None = None) -> list[str]:
    """Lines that name the scores that were left out, one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        if not name.endswith("_std"):  # goes with its score
            by_reason.setdefault(reason, []).append((names or {}).get(name, name))
    return [f"{', '.join(scores)} left out: {reason}" for reason, scores in by_reason.items()]


def in_words(workers: Iterable[int]) -> str:
    """Joins ranks by commas: `1, 2, 5`."""
    return ", ".join(map(str, workers))
