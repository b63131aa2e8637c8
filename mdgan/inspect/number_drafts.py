"""Drafts the columns of a schema that hold numbers, and warns of what they reveal of few rows."""

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
_SHARE_OF_COMMON = 0.01  # of all rows; a value with more of them is common
_ABOVE_USUAL, _CHANCE = 2, 5  # times as many as usual, and standard deviations more
_ABOVE_AVERAGE = 4  # times as many rows as an average whole number has
_LONG_TAIL = 20  # a tail is long if the median lies in this part of the bounds or below
_GAP = 0.25  # of the bounds; a single row behind a larger gap is far from the others
_NUM_CELLS = 1024
_USUAL_DECIMALS, _MOST_DECIMALS = 6, 12
_MOST_CODES = 3
_USUAL_CODE = re.compile(r"[789]|77+|88+|99+|9+\.9+")

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class _Scale(TypedDict):
    """The fields that columns of numbers, dates and times share."""

    name: str
    may_be_missing: bool
    common: tuple[float, ...]
    spacing: Literal["linear", "log"]


def draft_numbers(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    """Drafts a column of numbers, with remarks for its author; LeftOut if it looks like a key."""
    values, counts = facts.numbers.merge_pieces()
    if max(abs(values[0]), abs(values[-1])) > schema.LARGEST_WHOLE:
        raise LeftOut("has numbers so large that digits are lost, like a key")
    is_whole = facts.decimals <= 0
    decimals = 0 if is_whole else _useful_decimals(facts.decimals, float(values[-1] - values[0]))
    values = np.array([round(value, decimals) for value in values.tolist()])
    if values[0] == values[-1] and not facts.ends:
        raise LeftOut(f"says {values[0]:g} in every row, but for the last decimals")
    num_rows = facts.num_values
    all_differ = len(values) == num_rows
    if is_whole and num_rows >= FEW and all_differ and values[-1] - values[0] == num_rows - 1:
        raise LeftOut("numbers the rows one after the other, like a key")
    remarks = words_as_missing(facts)
    if is_whole and num_rows >= 10 * FEW and all_differ:
        remarks.append("every row has a number of its own; leave it out if it is a key")
    low, high = float(values[0]), float(values[-1])
    ends, bounds = _scale_ends(facts.ends, low, high, is_whole=is_whole)
    codes = _ask_about_codes(values, counts)
    remarks += codes
    has_few = len(values) <= _FEW_VALUES
    is_plain = not any(map(str, facts.writings.values()))  # as categories have no units and signs
    has_gaps = high - low >= len(values) and (len(values) == 2 or counts.min() >= FEW)
    if is_whole and has_few and is_plain and not ends and has_gaps:
        remarks.append(
            "few whole numbers with others between that never occur, so they are taken as ordered "
            "categories; write the kind whole if the others may occur"
        )
        categories = tuple(f"{value:.0f}" for value in values.tolist())
        ordered = schema.OrderedColumn(
            name=facts.name, may_be_missing=bool(facts.missing), categories=categories
        )
        return ordered, remarks
    if is_whole and has_few:
        remarks.append("few whole numbers; write the kind category where they stand for words")
    elif low != high:
        low, high = _round_bounds(low, high, decimals)
    low, high = bounds.get("<", low), bounds.get(">", high)
    if not codes:
        remarks += _warn_of_bounds(values, counts, low, high=high)
    keys, how_read = _read_writings(facts)
    scale = scale_of(facts, values, counts, bounds=(low, high), is_exact=is_whole)
    remarks += how_read
    if is_whole:
        return schema.WholeColumn(low=int(low), high=int(high), **scale, **ends, **keys), remarks
    keys |= ends
    return schema.NumberColumn(low=low, high=high, decimals=decimals, **scale, **keys), remarks


def _read_writings(facts: ColumnFacts) -> tuple[dict[str, Any], list[str]]:
    """Returns how files write the numbers, as keys of a schema and as remarks."""
    keys: dict[str, Any] = {}
    writings = {str(writing) for writing in facts.writings.values() if str(writing)}
    units = {writing.unit for writing in facts.writings.values()} - {""}
    if len(units) > 1:
        raise LeftOut(f"has the units {' and '.join(sorted(units))}; convert them to one")
    if units:
        keys["unit"] = units.pop()
    remarks = [f"numbers are read with {' or '.join(sorted(writings))}"] if writings else []
    if facts.ends:
        remarks.append(f"{', '.join(facts.ends)} in {rows_in_words(facts.num_ends)} ends the scale")
    if "unit" in keys:
        remarks[0] += "; generated rows have the number alone"
    return keys, remarks


def _scale_ends(
    rows_by_end: Counter[str], low: float, high: float, *, is_whole: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """Returns the ends of a scale, such as <5, as keys of a schema, and the bound on each side."""
    keys: dict[str, Any] = {}
    bounds: dict[str, float] = {}
    for text in sorted(rows_by_end):
        sign, bound = parse_end(text, is_whole=is_whole)
        key = "above" if sign[0] == ">" else "below"
        end = bound if len(sign) == 1 else text
        if keys.get(key, end) != end:
            raise LeftOut(
                f"has several ends of its scale, {', '.join(sorted(rows_by_end))}; write one"
            )
        if high > bound if key == "above" else low < bound:
            raise LeftOut(
                f"has {text} in {rows_in_words(rows_by_end[text])}, and "
                f"{high if key == 'above' else low:g} beyond it"
            )
        keys[key], bounds[sign[0]] = end, bound
    return keys, bounds


def _ask_about_codes(values: Floats, counts: Counts) -> list[str]:
    """Asks whether values far from all others, such as 999, stand for missing ones."""
    rest, far = list(range(len(values))), list[int]()
    while len(rest) > 2 and len(far) < _MOST_CODES:
        low, high = values[rest[0]], values[rest[-1]]
        gap_by_end = {
            rest[0]: (values[rest[1]] - low) / max(high - values[rest[1]], 1e-300),
            rest[-1]: (high - values[rest[-2]]) / max(values[rest[-2]] - low, 1e-300),
        }
        place = max(gap_by_end, key=gap_by_end.__getitem__)
        is_usual = _USUAL_CODE.fullmatch(f"{abs(values[place]):.12g}") is not None
        if gap_by_end[place] <= (0.5 if is_usual else 1):
            break
        if not is_usual and counts[place] < FEW:
            break
        far.append(place)
        rest.remove(place)
    if not far:
        return []
    texts = [f"{values[place]:.12g}" for place in sorted(far)]
    counted = [
        f"{text} in {rows_in_words(int(counts[place]))}"
        for text, place in zip(texts, sorted(far), strict=True)
    ]
    quoted = [f'"{text}"' for text in texts]
    return [
        f"{' and '.join(counted)}, far from all others ({values[rest[0]]:.12g} to "
        f"{values[rest[-1]]:.12g}); {advise_missing(quoted)}"
    ]


def advise_missing(codes: Iterable[str]) -> str:
    """Says how a schema declares that some values stand for missing ones."""
    return (
        f'if that stands for missing values, write "missing": [{", ".join(codes)}] and '
        '"may_be_missing": true, and bounds of the others'
    )


def scale_of(
    facts: ColumnFacts, values: Floats, counts: Counts, bounds: tuple[float, float], is_exact: bool
) -> _Scale:
    """Chooses the common values and the spacing of cells; `is_exact` if values are whole."""
    has_cells = is_exact and bounds[1] - bounds[0] < _NUM_CELLS
    common = _common_values(values, counts, has_cells=has_cells)
    is_other = ~np.isin(values, common)
    is_long = False
    if is_other.any() and not has_cells:
        rows = np.cumsum(counts[is_other])
        median = values[is_other][np.searchsorted(rows, rows[-1] / 2)] - bounds[0]
        is_long = 0 < median < (bounds[1] - bounds[0]) / _LONG_TAIL
    return {
        "name": facts.name,
        "may_be_missing": bool(facts.missing),
        "common": common,
        "spacing": "log" if is_long else "linear",
    }


def _common_values(values: Floats, counts: Counts, *, has_cells: bool) -> tuple[float, ...]:
    """The values of so many rows that a histogram would blur them.

    If there are more than a few values, these must stand out from their neighbours beyond chance,
    or, if each has a cell, from the average: 0, 1 and 2 of a column that goes on to 30.
    """
    is_common = counts >= max(FEW, _SHARE_OF_COMMON * counts.sum())
    if len(values) > _FEW_VALUES:
        average = np.asarray(counts.mean())
        stand_out = _exceeds(counts, _usual_counts(values, counts), times=_ABOVE_USUAL)
        if has_cells:
            stand_out |= _exceeds(counts, average, times=_ABOVE_AVERAGE)
        is_common &= stand_out
    places = np.flatnonzero(is_common)
    most = places[np.argsort(-counts[places], kind="stable")][: schema.MOST_COMMON]
    return tuple(sorted(set(values[most].tolist())))


def _exceeds(counts: Counts, expected: Floats, *, times: float) -> NDArray[np.bool_]:
    """Where counts are at least so many times what is expected, and that cannot be chance."""
    exceeds: NDArray[np.bool_] = (counts >= times * expected) & (
        counts > expected + _CHANCE * np.sqrt(expected)
    )
    return exceeds


def _usual_counts(values: Floats, counts: Counts) -> Floats:
    """For each value the median count, a step, of its two neighbours on either side, [n]."""
    steps, none = np.diff(values) / np.diff(values).min(), [np.nan] * 2
    left, right = [*none, *(counts[:-1] / steps)], [*(counts[1:] / steps), *none]
    medians: Floats = np.nanmedian([left[1:], left[:-1], right[:-1], right[1:]], axis=0)
    return medians


def _useful_decimals(most: int, span: float) -> int:
    """At most as many decimals as the files have, without those that are noise beside the span."""
    useful = _USUAL_DECIMALS - floor(log10(span)) if span > 0 else _MOST_DECIMALS
    return min(most, max(_USUAL_DECIMALS, useful), _MOST_DECIMALS)


def _round_bounds(low: float, high: float, decimals: int) -> tuple[float, float]:
    """Widens bounds to one digit, so that they reveal no row's value."""
    step = Decimal(10) ** max(floor(log10(high - low)), -decimals)
    least = floor(Decimal(low) / step) * step
    most = ceil(Decimal(high) / step) * step
    return max(float(least), -schema.LARGEST_WHOLE), min(float(most), schema.LARGEST_WHOLE)


def _warn_of_bounds(values: Floats, counts: Counts, low: float, high: float) -> Iterable[str]:
    """Warns if a bound reveals a few extreme rows."""
    words = {-1: (f"upper bound {high:.12g}", "above"), 0: (f"lower bound {low:.12g}", "below")}
    for place, neighbour in ((-1, -2), (0, 1)) if len(values) > 2 else ():
        bound, where = words[place]
        gap = abs(values[place] - values[neighbour])
        if counts[place] < FEW and gap > _GAP * (high - low):
            yield (
                f"the {bound} tells of {rows_in_words(int(counts[place]))}, far {where} the others "
                f"({values[neighbour]:.12g}); write the bound that your protocol has"
            )


def words_as_missing(facts: ColumnFacts) -> list[str]:
    """Says which texts mdgan takes as missing though they may be categories."""
    return [
        f"{text!r} in {rows_in_words(count)} is taken as missing; add it to the categories if it "
        "is one"
        for text, count in facts.missing.items()
        if text in ("None", "?", "NA") and facts.num_others
    ]
