"""Drafts the columns of a schema that hold numbers, and says what they tell of few rows."""

import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from math import ceil, floor, log10
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from mdgan.inspect.table_facts import FEW, ColumnFacts, LeftOut, rows_in_words
from mdgan.samples.table import schema
from mdgan.samples.table.numbers import parse_end
from mdgan.samples.table.schema import AnyColumn

_FEW_VALUES = 10
_SHARE_OF_COMMON = 0.01
_ABOVE_USUAL, _CHANCE = 2, 5  # times as many as usual, and standard deviations more
_LONG_TAIL = 20
_GAP = 0.25
_NUM_CELLS = 1024
_USUAL_DECIMALS, _MOST_DECIMALS = 6, 12
_MOST_CODES = 3
_USUAL_CODE = re.compile(r"[789]|77+|88+|99+|9+\.9+")

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class _Scale(TypedDict):
    """What columns of numbers, dates and times have alike."""

    name: str
    may_be_missing: bool
    common: tuple[float, ...]
    spacing: Literal["linear", "log"]


def of_numbers(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    """The column of numbers, and what its author should look at; LeftOut if it should be none."""
    values, counts = facts.numbers.together()
    if max(abs(values[0]), abs(values[-1])) > schema.LARGEST_WHOLE:
        raise LeftOut("has numbers so large that digits are lost, like a key")
    is_whole = facts.decimals <= 0
    decimals = 0 if is_whole else _decimals(facts.decimals, float(values[-1] - values[0]))
    values = np.array([round(value, decimals) for value in values.tolist()])
    if values[0] == values[-1] and not facts.ends:
        raise LeftOut(f"says {values[0]:g} in every row, but for the last decimals")
    num_rows = facts.num_values
    all_differ = len(values) == num_rows
    if is_whole and num_rows >= FEW and all_differ and values[-1] - values[0] == num_rows - 1:
        raise LeftOut("numbers the rows one after the other, like a key")
    told = words_as_missing(facts)
    if is_whole and num_rows >= 10 * FEW and all_differ:
        told.append("every row has a number of its own; leave it out if it is a key")
    ends, bounds = _ends(facts.ends, float(values[0]), float(values[-1]), is_whole=is_whole)
    codes = _codes(values, counts)
    told += codes
    has_few = len(values) <= _FEW_VALUES
    is_plain = not any(map(str, facts.writings.values()))  # texts of categories are no numbers
    if is_whole and has_few and is_plain and not ends and _has_gaps(values, counts):
        told.append(
            "few whole numbers with others between that never occur, so they are taken as ordered "
            "categories; write the kind whole if the others may occur"
        )
        categories = tuple(f"{value:.0f}" for value in values.tolist())
        may_be_missing = bool(facts.missing)
        return (
            schema.OrderedColumn(
                name=facts.name, may_be_missing=may_be_missing, categories=categories
            ),
            told,
        )
    if is_whole and has_few:
        low, high = float(values[0]), float(values[-1])
        told.append("few whole numbers; write the kind category where they stand for words")
    elif values[0] == values[-1]:
        low, high = float(values[0]), float(values[-1])
    else:
        low, high = _round_bounds(float(values[0]), float(values[-1]), decimals)
    low, high = bounds.get("<", low), bounds.get(">", high)
    if not codes:
        told += _gaps(values, counts, low, high=high)
    keys, said = _written(facts)
    scale = scale_of(facts, values, counts, bounds=(low, high), is_exact=is_whole)
    told += said
    if is_whole:
        return schema.WholeColumn(low=int(low), high=int(high), **scale, **ends, **keys), told
    keys |= ends
    return schema.NumberColumn(low=low, high=high, decimals=decimals, **scale, **keys), told


def _written(facts: ColumnFacts) -> tuple[dict[str, Any], list[str]]:
    """How files write the numbers, as a schema's keys, and in words."""
    keys: dict[str, Any] = {}
    found = {str(writing) for writing in facts.writings.values() if str(writing)}
    units = {writing.unit for writing in facts.writings.values()} - {""}
    if len(units) > 1:
        raise LeftOut(f"has the units {' and '.join(sorted(units))}; convert them to one")
    if units:
        keys["unit"] = units.pop()
    told = [f"numbers are read with {' or '.join(sorted(found))}"] if found else []
    if facts.ends:
        told.append(f"{', '.join(facts.ends)} in {rows_in_words(facts.num_ends)} ends the scale")
    if "unit" in keys:
        told[0] += "; generated rows have the number alone"
    return keys, told


def _ends(
    found: Counter[str], low: float, high: float, *, is_whole: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """The ends of a scale, as a schema's keys, and its bound on each side that has one."""
    keys: dict[str, Any] = {}
    bounds: dict[str, float] = {}
    for text in sorted(found):
        sign, bound = parse_end(text, is_whole=is_whole)
        key = "above" if sign[0] == ">" else "below"
        end = bound if len(sign) == 1 else text
        if keys.get(key, end) != end:
            raise LeftOut(f"has several ends of its scale, {', '.join(sorted(found))}; write one")
        if high > bound if key == "above" else low < bound:
            raise LeftOut(
                f"has {text} in {rows_in_words(found[text])}, and "
                f"{high if key == 'above' else low:g} beyond it"
            )
        keys[key], bounds[sign[0]] = end, bound
    return keys, bounds


def _has_gaps(values: Floats, counts: Counts) -> bool:
    """Whether numbers between others never occur, though their neighbours do often."""
    is_sure = len(values) == 2 or counts.min() >= FEW
    return bool(is_sure and values[-1] - values[0] >= len(values))


def _codes(values: Floats, counts: Counts) -> list[str]:
    """What to ask about values far from all others, which may stand for missing ones."""
    rest, found = list(range(len(values))), list[int]()
    while len(rest) > 2 and len(found) < _MOST_CODES:
        low, high = values[rest[0]], values[rest[-1]]
        of_ends = {
            rest[0]: (values[rest[1]] - low) / max(high - values[rest[1]], 1e-300),
            rest[-1]: (high - values[rest[-2]]) / max(values[rest[-2]] - low, 1e-300),
        }
        place = max(of_ends, key=of_ends.__getitem__)
        is_usual = _USUAL_CODE.fullmatch(f"{abs(values[place]):.12g}") is not None
        if of_ends[place] <= (0.5 if is_usual else 1):
            break
        if not is_usual and counts[place] < FEW:
            break
        found.append(place)
        rest.remove(place)
    if not found:
        return []
    texts = [f"{values[place]:.12g}" for place in sorted(found)]
    said = [
        f"{text} in {rows_in_words(int(counts[place]))}"
        for text, place in zip(texts, sorted(found), strict=True)
    ]
    listed = [f'"{text}"' for text in texts]
    return [
        f"{' and '.join(said)}, far from all others ({values[rest[0]]:.12g} to "
        f"{values[rest[-1]]:.12g}); {missing_if(listed)}"
    ]


def missing_if(codes: Iterable[str]) -> str:
    """What to write of values that may stand for missing ones."""
    return (
        f'if that stands for missing values, write "missing": [{", ".join(codes)}] and '
        '"may_be_missing": true, and bounds of the others'
    )


def scale_of(
    facts: ColumnFacts, values: Floats, counts: Counts, bounds: tuple[float, float], is_exact: bool
) -> _Scale:
    """What is common, and how cells are spaced; `is_exact`: a cell for each of few values."""
    has_cells = is_exact and bounds[1] - bounds[0] < _NUM_CELLS
    common = _common(values, counts)
    others = ~np.isin(values, common)
    is_long = False
    if others.any() and not has_cells:
        rows = np.cumsum(counts[others])
        median = values[others][np.searchsorted(rows, rows[-1] / 2)] - bounds[0]
        is_long = 0 < median < (bounds[1] - bounds[0]) / _LONG_TAIL
    return {
        "name": facts.name,
        "may_be_missing": bool(facts.missing),
        "common": common,
        "spacing": "log" if is_long else "linear",
    }


def _common(values: Floats, counts: Counts) -> tuple[float, ...]:
    """The values that so many rows share that a histogram would blur them.

    Of more than a few they have to stand out from their neighbours, so that it cannot be chance.
    """
    is_common = counts >= max(FEW, _SHARE_OF_COMMON * counts.sum())
    if len(values) > _FEW_VALUES:
        usual = _usual(values, counts)
        is_common &= counts > np.maximum(_ABOVE_USUAL * usual, usual + _CHANCE * np.sqrt(usual))
    places = np.flatnonzero(is_common)
    most = places[np.argsort(-counts[places], kind="stable")][: schema.MOST_COMMON]
    return tuple(sorted(set(values[most].tolist())))


def _usual(values: Floats, counts: Counts) -> Floats:
    """How many rows the two values on either side of each have in a step, their median, [n]."""
    steps, none = np.diff(values) / np.diff(values).min(), [np.nan] * 2
    left, right = [*none, *(counts[:-1] / steps)], [*(counts[1:] / steps), *none]
    found: Floats = np.nanmedian([left[1:], left[:-1], right[:-1], right[1:]], axis=0)
    return found


def _decimals(found: int, span: float) -> int:
    """As many as were found, but none that tell nothing beside the span."""
    useful = _USUAL_DECIMALS - floor(log10(span)) if span > 0 else _MOST_DECIMALS
    return min(found, max(_USUAL_DECIMALS, useful), _MOST_DECIMALS)


def _round_bounds(low: float, high: float, decimals: int) -> tuple[float, float]:
    """Wider bounds of one digit, so that they tell of no row."""
    step = Decimal(10) ** max(floor(log10(high - low)), -decimals)
    least = floor(Decimal(low) / step) * step
    most = ceil(Decimal(high) / step) * step
    return max(float(least), -schema.LARGEST_WHOLE), min(float(most), schema.LARGEST_WHOLE)


def _gaps(values: Floats, counts: Counts, low: float, high: float) -> Iterable[str]:
    """What the bounds tell of a single extreme row."""
    words = {-1: (f"upper bound {high:.12g}", "above"), 0: (f"lower bound {low:.12g}", "below")}
    for place, beside in ((-1, -2), (0, 1)) if len(values) > 2 else ():
        bound, where = words[place]
        room = abs(values[place] - values[beside])
        if counts[place] < FEW and room > _GAP * (high - low):
            yield (
                f"the {bound} tells of {rows_in_words(int(counts[place]))}, far {where} the others "
                f"({values[beside]:.12g}); write the bound that your protocol has"
            )


def words_as_missing(facts: ColumnFacts) -> list[str]:
    """What is taken for a missing value, though it may be one."""
    return [
        f"{text!r} in {rows_in_words(count)} is taken as missing; add it to the categories if it "
        "is one"
        for text, count in facts.missing.items()
        if text in ("None", "?", "NA") and facts.num_others
    ]
