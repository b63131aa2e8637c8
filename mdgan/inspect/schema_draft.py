"""Drafts a schema from the rows of one site, and says what it tells of them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil, floor, log10
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from mdgan.errors import BadInput, printable
from mdgan.inspect.table_facts import ColumnFacts, facts_of_table, formulas, num_equal_rows
from mdgan.samples.table import schema
from mdgan.samples.table.schema import AnyColumn, Schema

FEW = 10  # fewer rows than these could tell of the people in them

_YES_NO = (
    *(("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("0", "1"), ("nein", "ja")),
    *(("non", "oui"), ("no", "si"), ("no", "sí"), ("nee", "ja"), ("nej", "ja")),
)
_ALWAYS_PERSONAL = frozenset(
    {"address", "email", "fax", "guid", "iban", "mail", "mobile", "passport", "phone", "ssn"}
    | {"street", "telephone", "uuid"}
)
_MAYBE_PERSONAL = frozenset(
    {"comment", "comments", "firstname", "forename", "id", "ids", "key", "lastname", "mrn", "name"}
    | {"names", "note", "notes", "remark", "remarks", "surname", "text"}
)
_PERSONS = frozenset(
    {"case", "mrn", "participant", "patient", "patienten", "person", "pid", "proband", "subject"}
)
_KEYS = frozenset({"guid", "id", "ids", "key", "ssn", "uuid"})
_NUMBERS = frozenset({"code", "no", "nr", "num", "number"})
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LONG_TEXT = 60
_FEW_VALUES = 10
_SHARE_OF_COMMON = 0.01
_ABOVE_AVERAGE = 4
_LONG_TAIL = 20
_GAP = 0.25
_NUM_CELLS = 1024
_USUAL_DECIMALS, _MOST_DECIMALS = 6, 12
_EPOCH = datetime(1970, 1, 1)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class _Scale(TypedDict):
    """What columns of numbers, dates and times have alike."""

    name: str
    may_be_missing: bool
    common: tuple[float, ...]
    spacing: Literal["linear", "log"]


@dataclass
class Draft:
    """A schema, and what its author should look at."""

    schema: Schema
    num_rows: int
    # Which columns of the file it lacks, and why, a line each.
    left_out: list[str] = field(default_factory=list)
    # What it tells of few rows, and what may be meant otherwise, a line each.
    warnings: list[str] = field(default_factory=list)


class _LeftOut(Exception):
    """Why a column cannot stand in a schema."""


def draft(path: Path) -> Draft:
    """Drafts a schema from a file, or a folder of files; BadInput if no column is left."""
    columns: list[AnyColumn] = []
    left_out: list[str] = []
    person, whose = "", list[str]()
    told_of: dict[str, list[str]] = {}
    facts = facts_of_table(path)
    for fact in facts:
        if not person and _names_persons(fact):
            person = fact.name
            whose.append(
                f"{person}: {len(fact.texts):,} values in {_rows(fact.num_values)}, so rows are "
                "not people: the draft names it as the person, whose rows are one unit of privacy "
                'and stay with one worker; take out "person" if it is something else'
            )
            continue
        try:
            column, told = _column(fact)
            columns.append(column)
            for line in told:
                told_of.setdefault(line, []).append(fact.name)
        except _LeftOut as why:
            left_out.append(f"{fact.name}: {why}")
    if not columns:
        raise BadInput(f"{path}: no column is left for a schema: {'; '.join(left_out)}")
    drafted = Schema(columns=tuple(columns), person=person or UNSET)
    for problem in schema.problems_of(drafted):  # such as too many columns
        raise BadInput(f"{path}: no schema can hold it: {problem}")
    num_rows = facts[0].num_values + facts[0].missing.total()
    warnings = [f"{', '.join(names)}: {line}" for line, names in told_of.items()]
    warnings += filter(None, map(formulas, columns))
    if not person and (equal := num_equal_rows(path)):
        whose.append(
            f"{_rows(equal)} equal others; with differential privacy equal rows count as one person"
            ': say "rows_are_independent": true if they are of different people'
        )
    return Draft(drafted, num_rows, left_out, [*whose, *warnings])


def _column(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    _refuse_personal(facts)
    if not facts.num_values:
        raise _LeftOut("has no value in any row")
    if len(facts.texts) == 1:
        raise _LeftOut(f"says {_shown(next(iter(facts.texts)))!r} in every row")
    if (column := _yes_no(facts)) is not None:
        return column, _words_as_missing(facts)
    if facts.num_numbers == facts.num_values and not facts.is_coded:
        return _of_numbers(facts)
    if facts.num_moments == facts.num_values:
        return _of_moments(facts)
    return _of_texts(facts)


def _refuse_personal(facts: ColumnFacts) -> None:
    """Refuses what is called like something that names a person, or counts rows."""
    words = {word.lower() for word in _WORDS.findall(facts.name)}
    if found := words & _ALWAYS_PERSONAL:
        raise _LeftOut(f"is called {min(found)}, which names a person")
    many = facts.has_more_texts or len(facts.texts) > max(FEW, facts.num_values / 20)
    if many and (found := words & _MAYBE_PERSONAL):
        raise _LeftOut(f"is called {min(found)} and has many different values")


def _names_persons(facts: ColumnFacts) -> bool:
    """Whether a column says whose rows these are: it is called so, and values come again."""
    words = {word.lower() for word in _WORDS.findall(facts.name)}
    is_key = words & _PERSONS and words & (_KEYS | _NUMBERS)
    if not (is_key or (words and words <= _PERSONS | _KEYS)) or facts.missing:
        return False
    repeats = len(facts.texts) < facts.num_values and not facts.has_more_texts
    # A key of a few groups has many rows each.
    least = 2 if words & _PERSONS else max(FEW, facts.num_values / 50)
    return repeats and len(facts.texts) >= least


def _yes_no(facts: ColumnFacts) -> schema.YesNoColumn | None:
    # Programs that have only floats for numbers with gaps write 1 as 1.0.
    texts = {text.removesuffix(".0") for text in facts.texts}
    for no, yes in _YES_NO:
        if {text.casefold() for text in texts} == {no, yes} and len(texts) == 2:
            spelt = {text.casefold(): text for text in texts}
            return schema.YesNoColumn(
                name=facts.name, may_be_missing=bool(facts.missing), no=spelt[no], yes=spelt[yes]
            )
    return None


# Numbers, dates and times.


def _of_numbers(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    values, counts = facts.numbers.together()
    if max(abs(values[0]), abs(values[-1])) > schema.LARGEST_WHOLE:
        raise _LeftOut("has numbers so large that digits are lost, like a key")
    is_whole = facts.decimals <= 0
    decimals = 0 if is_whole else _decimals(facts.decimals, float(values[-1] - values[0]))
    values = np.array([round(value, decimals) for value in values.tolist()])
    if values[0] == values[-1]:
        raise _LeftOut(f"says {values[0]:g} in every row, but for the last decimals")
    num_rows = facts.num_values
    all_differ = len(values) == num_rows
    if is_whole and num_rows >= FEW and all_differ and values[-1] - values[0] == num_rows - 1:
        raise _LeftOut("numbers the rows one after the other, like a key")
    told = _words_as_missing(facts)
    if is_whole and num_rows >= 10 * FEW and all_differ:
        told.append("every row has a number of its own; leave it out if it is a key")
    has_few = len(values) <= _FEW_VALUES
    if is_whole and has_few:
        low, high = float(values[0]), float(values[-1])
        told.append("few whole numbers; write the kind category where they stand for words")
    else:
        low, high = _round_bounds(float(values[0]), float(values[-1]), decimals)
    told += _gaps(values, counts, low, high)
    scale = _scale(facts, values, counts, (low, high), is_exact=is_whole)
    if is_whole:
        return schema.WholeColumn(low=int(low), high=int(high), **scale), told
    return schema.NumberColumn(low=low, high=high, decimals=decimals, **scale), told


def _of_moments(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    if any(text.endswith("Z") or re.search(r"\d[+-]\d\d:?\d\d$", text) for text in facts.texts):
        raise _LeftOut("has moments with a time zone; write all in the same, and leave it out")
    seconds, counts = facts.moments.together()
    days = seconds / 86_400
    if seconds[0] == seconds[-1]:
        raise _LeftOut("has the same moment in every row")
    first, last = (_EPOCH + timedelta(seconds=float(seconds[place])) for place in (0, -1))
    low = datetime(first.year, 1, 1)
    high = datetime(last.year, 12, 31, 23, 59, 59)
    told = [*_words_as_missing(facts), *_early_or_late(days, counts)]
    values = seconds - (low - _EPOCH).total_seconds()
    if facts.has_times:
        bounds = (0.0, (high - low).total_seconds())
        scale = _scale(facts, values, counts, bounds, is_exact=True)
        return schema.TimeColumn(low=low.isoformat(), high=high.isoformat(), **scale), told
    values, bounds = values / 86_400, (0.0, float((high - low).days))
    scale = _scale(facts, values, counts, bounds, is_exact=True)
    return schema.DateColumn(low=f"{low:%Y-%m-%d}", high=f"{high:%Y-%m-%d}", **scale), told


def _scale(
    facts: ColumnFacts, values: Floats, counts: Counts, bounds: tuple[float, float], is_exact: bool
) -> _Scale:
    """What is common, and how cells are spaced; `is_exact`: a cell for each of few values."""
    has_cells = is_exact and bounds[1] - bounds[0] < _NUM_CELLS
    common = _common(values, counts, has_cells=has_cells)
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


def _common(values: Floats, counts: Counts, *, has_cells: bool) -> tuple[float, ...]:
    """The values that so many rows share that a histogram would blur them.

    Args:
        has_cells: whether each value has a cell of its own; then only what stands out is common.
    """
    total = counts.sum()
    least = max(FEW, _SHARE_OF_COMMON * total)
    if has_cells and len(values) > _FEW_VALUES:
        least = max(least, _ABOVE_AVERAGE * total / len(values))
    places = np.flatnonzero(counts >= least)
    most = places[np.argsort(-counts[places], kind="stable")][: schema.MOST_COMMON]
    return tuple(sorted(set(values[most].tolist())))


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
    for place, beside in _far_ends(values, counts, _GAP * (high - low)):
        bound, where = words[place]
        yield (
            f"the {bound} tells of {_rows(int(counts[place]))}, far {where} the others "
            f"({values[beside]:.12g}); write the bound that your protocol has"
        )


def _early_or_late(days: Floats, counts: Counts) -> Iterable[str]:
    """What the years of bounds tell of a single row that is far from the others."""
    for place, _ in _far_ends(days, counts, _GAP * (days[-1] - days[0])):
        year = (_EPOCH + timedelta(days=float(days[place]))).year
        yield (
            f"the {'first' if place == 0 else 'last'} year, {year}, tells of "
            f"{_rows(int(counts[place]))}, far from the others; write the bound that your "
            "protocol has"
        )


def _far_ends(values: Floats, counts: Counts, room: float) -> Iterable[tuple[int, int]]:
    """The places of the last and first value if few rows have it, and of the one beside it."""
    for place, beside in ((-1, -2), (0, 1)):
        if len(values) > 2 and counts[place] < FEW and abs(values[place] - values[beside]) > room:
            yield place, beside


# Texts.


def _of_texts(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    num_rows, num_texts = facts.num_values, len(facts.texts)
    if facts.has_more_texts or num_texts > schema.MOST_CATEGORIES:
        raise _LeftOut(
            f"has more than {schema.MOST_CATEGORIES:,} different texts: names, keys or prose"
        )
    for what, count in (("numbers", facts.num_numbers), ("dates", facts.num_moments)):
        if num_texts > 5 * FEW and count >= 0.9 * num_rows and not facts.is_coded:
            raise _LeftOut(
                f"has {what}, but in {_rows(num_rows - count)} others, such as "
                f"{_shown(facts.example)!r}; correct or empty those"
            )
    if num_texts > 1 and all(re.fullmatch(r"\d\d?[/-]\d\d?[/-]\d+.*", t) for t in facts.texts):
        example = _shown(next(iter(facts.texts)))
        raise _LeftOut(
            f"has dates like {example!r}, where day and month may be taken for each other; write "
            "2024-12-31"
        )
    if num_texts > max(FEW, num_rows / 2):
        raise _LeftOut("has another text in nearly every row: names, keys or prose")
    if sum(map(len, facts.texts)) > _LONG_TEXT * num_texts:
        raise _LeftOut("has long texts: prose")
    if strange := [text for text in facts.texts if not text.isprintable()]:
        raise _LeftOut(f"has characters that cannot be printed, in {_shown(strange[0])!r}")
    if alike := schema.written_alike(sorted(facts.texts)):
        raise _LeftOut(f"has {_shown(alike)}, which would be written alike as CSV")
    column = schema.CategoryColumn(
        name=facts.name, may_be_missing=bool(facts.missing), categories=tuple(sorted(facts.texts))
    )
    return column, [*_rare(facts), *_spellings(facts), *_words_as_missing(facts)]


def _rare(facts: ColumnFacts) -> Iterable[str]:
    rare = sorted(text for text, count in facts.texts.items() if count < FEW)
    if rare:
        shown = ", ".join(repr(_shown(text)) for text in rare[:3])
        more = f" and {len(rare) - 3:,} more" if len(rare) > 3 else ""
        noun = "category" if len(rare) == 1 else "categories"
        yield (
            f"{noun} {shown}{more} with fewer than {FEW} rows; join rare ones, here and in the "
            "files, or write all that your protocol has"
        )


def _spellings(facts: ColumnFacts) -> Iterable[str]:
    seen: dict[str, str] = {}
    for text in facts.texts:
        other = seen.setdefault(" ".join(text.casefold().split()), text)
        if other != text:
            yield f"{_shown(other)!r} and {_shown(text)!r} may be the same category"
            return


def _words_as_missing(facts: ColumnFacts) -> list[str]:
    """What is taken for a missing value, though it may be one."""
    return [
        f"{text!r} in {_rows(count)} is taken as missing; add it to the categories if it is one"
        for text, count in facts.missing.items()
        if text in ("None", "?", "NA") and facts.num_others
    ]


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _shown(text: str) -> str:
    return printable(text, 40)
