"""Reads CSV and Parquet files by a schema; a text with two readings is refused, not guessed.

A first pass reads each text on its own, which is enough for most files. If a text can be understood
only by its whole column, that pass gives up: `_as_written` then finds from all texts how the file
writes numbers and dates, and a second pass reads by that.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from mdgan.errors import BadInput, warn_once
from mdgan.samples.table.moments import FormSurvey, form_seen, has_two_ways
from mdgan.samples.table.numbers import (
    NumberFormat,
    NumberSurvey,
    Undecided,
    number_text,
    parse_number,
    parse_numbers,
    parse_numeral,
    unit_problem,
    without_formula,
)
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.rules import Rules, broken_rules
from mdgan.samples.table.schema import (
    AnyColumn,
    MomentColumn,
    NumberColumn,
    NumericColumn,
    ScaledColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
)
from mdgan.samples.table.signs import strange_sign
from mdgan.samples.table.site_map import SiteMap, SiteView
from mdgan.samples.table.texts import (
    MISSING,
    VALUE_BYTES,
    OnProblem,
    Problem,
    Texts,
    blank_rows,
    check_header,
    check_size,
    files_of,
    refuse,
    shown,
    warn_of_strays,
)
from mdgan.storage.csv_file import cell

Floats = NDArray[np.float64]
NumberFormats = dict[str, NumberFormat | Undecided]
"""By column of numbers, how a file writes them, or why that cannot be decided."""


def read_rows(
    path: Path,
    schema: Schema,
    target: str | None = None,
    on_problem: OnProblem = refuse,
    site_map: SiteMap | None = None,
) -> Rows:
    """Reads a file, or all files of a folder in the order of their names.

    Args:
        target: a column that must have a value in every row.
        on_problem: called with each value that does not fit. If it returns, the value is missing.
        site_map: the site's names for the schema's columns and values; None if they are the same.

    Raises:
        BadInput: a file cannot be read, no file has a row, or `on_problem` raises it.
    """
    view = SiteView(schema, site_map)

    def on_shown(problem: Problem) -> None:
        on_problem(problem._replace(column=view.name_in_messages(problem.column)))

    parts = [_read_file(file, view, target, on_problem=on_shown) for file in files_of(path)]
    values, persons = (np.concatenate(each) for each in zip(*parts, strict=True))
    rows = Rows(schema, values, persons if schema.person else None)
    if not len(rows):
        raise BadInput(path, "has no row", "give a file with rows below its header")
    return rows


def _read_file(
    path: Path, view: SiteView, target: str | None, on_problem: OnProblem
) -> tuple[Floats, NDArray[np.object_]]:
    """Reads a file in one pass or two: values as in `Rows`, and each row's person or empty text."""
    file = _File(path, view, view.at_site, target, rules=Rules(view.schema), on_problem=_give_up)
    with suppress(_NotPlain):
        return _read_pieces(file)
    as_written, formats = _as_written(file)
    for column, fmt in formats.items():
        if isinstance(fmt, Undecided):
            on_problem(Problem(path, fmt.line, column, str(fmt)))
        elif str(fmt):
            warn_once(f"{path}, column {shown(column)}: numbers are read with {fmt}")
    file = file._replace(schema=as_written, on_problem=on_problem, formats=formats)
    return _read_pieces(file)


class _NotPlain(Exception):
    """The first pass met a text that only the whole column can explain."""


def _give_up(_: Problem) -> None:
    """Ends the first pass. The second one reports the problem, if it is still one."""
    raise _NotPlain


class _File(NamedTuple):
    """A file, and how it is read."""

    path: Path
    view: SiteView
    schema: Schema  # in the site's units; in the second pass with the file's forms of dates
    target: str | None
    rules: Rules  # of the schema that all sites agreed on
    on_problem: OnProblem
    formats: NumberFormats | None = None  # None in the first pass, for which numbers are plain
    # By column, how many rows have each text that counts as its "other" category.
    strays: Mapping[str, Counter[str]] = MappingProxyType({})

    def pieces(self) -> Iterator[Texts]:
        """Yields the texts of the file, in pieces, with the schema's names."""
        # When mdgan writes CSV, it puts an apostrophe before names that look like formulas.
        written = {cell(name): name for name in self.schema.names}
        for texts in self.view.texts_of(self.path):
            yield texts._replace(names=[written.get(name, name) for name in texts.names])


def _read_pieces(file: _File) -> tuple[Floats, NDArray[np.object_]]:
    pieces, persons, num_rows = list[Floats](), list[str](), 0
    file = file._replace(strays={column.name: Counter() for column in file.schema.columns})
    for values, whose in _pieces_of(file):
        num_rows += len(values)
        check_size(file.path, VALUE_BYTES * num_rows * len(file.schema.columns))
        pieces.append(values)
        persons += whose
    warn_of_strays(file.path, file.strays)
    return np.concatenate(pieces), np.array(persons, dtype=object)


def values_of_file(path: Path, schema: Schema) -> Iterator[Floats]:
    """Yields values as in `Rows`, [n, columns], in pieces; NaN also where a text does not fit."""
    view = SiteView(schema, None)
    file = _File(path, view, view.at_site, None, rules=Rules(schema), on_problem=lambda _: None)
    as_written, formats = _as_written(file)
    for values, _ in _pieces_of(file._replace(schema=as_written, formats=formats)):
        yield values


def _pieces_of(file: _File) -> Iterator[tuple[Floats, list[str]]]:
    """Yields the values and persons of each piece of a file, in one pass."""
    path, schema, misfits, commas = file.path, file.schema, set[int](), False

    def report(problem: Problem) -> None:
        misfits.add(problem.row)
        file.on_problem(problem)

    reporting = file._replace(on_problem=report)
    surveys = {column.name: NumberSurvey() for column in schema.columns}
    for number, texts in enumerate(file.pieces()):
        if number == 0:
            check_header(path, texts.names, schema, on_problem=file.on_problem)
        values = np.full((len(texts.lines), len(schema.columns)), np.nan)
        for place, column in enumerate(schema.columns):
            if column.name in texts.names:
                read = _read_column(reporting, column, texts, surveys[column.name])
                values[:, place] = file.view.to_schema_unit(place, read)
        for row, name, why in broken_rules(file.rules, values):
            # A text that does not fit is NaN, but not missing, as a rule would have it.
            if texts.lines[row] not in misfits:
                file.on_problem(Problem(path, texts.lines[row], name, why=why))
        yield values, _persons(path, texts, schema, on_problem=file.on_problem)
        commas = texts.commas
    if file.formats is None and any(s.may_be_thousands(commas=commas) for s in surveys.values()):
        raise _NotPlain
    if texts.num_blank:
        warn_once(blank_rows(path, texts.num_blank))


def _as_written(file: _File) -> tuple[Schema, NumberFormats]:
    """Finds the schema with the file's forms of dates, and `formats`, from all its texts."""
    surveys = {column.name: NumberSurvey() for column in file.schema.columns}
    forms = {column.name: FormSurvey() for column in file.schema.columns}
    schema, commas, typed = file.schema, False, frozenset[str]()
    for texts in file.pieces():
        commas, typed = texts.commas, texts.typed
        for column in schema.columns:
            if (name := column.name) not in texts.names:
                continue
            if isinstance(column, MomentColumn):
                forms[name].add(_present(column, texts))
            elif isinstance(column, NumericColumn) and name not in typed:
                surveys[name].add(_present(column, texts), texts.line_in(name))
    columns, formats = list[AnyColumn](), NumberFormats()
    for column in schema.columns:
        name = column.name
        if isinstance(column, MomentColumn):
            form, example = forms[name].form(column.day_form)
            since = f", as {shown(example)!r} has to be" if example else ""
            _warn_of_form(file.path, column, form, since)
            column = replace(column, form=form) if example else column
        elif isinstance(column, NumericColumn) and name not in typed:
            agreed = {"decimal": column.decimal or "", "unit": column.unit or ""}
            whole = isinstance(column, WholeColumn)
            try:
                formats[name] = surveys[name].number_format(commas=commas, whole=whole, **agreed)
            except Undecided as why:
                formats[name] = why
        columns.append(column)
    return replace(schema, columns=tuple(columns)), formats


def _warn_of_form(path: Path, column: MomentColumn, form: str, since: str = "") -> None:
    if form and form != column.day_form:
        warn_once(f"{path}, column {shown(column.name)}: dates are read as {form}{since}")


def _present(column: AnyColumn, texts: Texts) -> list[str]:
    """The different texts of a column that do not stand for a missing value."""
    codes = MISSING | frozenset(column.missing or ())
    different = dict.fromkeys(texts.column(column.name))
    return [text for text in different if text not in codes and text.strip()]


def _persons(path: Path, texts: Texts, schema: Schema, on_problem: OnProblem) -> list[str]:
    """The person of each row; empty texts if the schema or the file names none."""
    if not schema.person or schema.person not in texts.names:
        return [""] * len(texts.lines)
    named = texts.column(schema.person)
    # A program that has only floats for numbers with gaps writes 1 as 1.0.
    persons = [" ".join(normalize("NFC", text).split()).removesuffix(".0") for text in named]
    for line, person in zip(texts.lines, persons, strict=True):
        if person in MISSING:
            why = "is missing, and the schema names it as the person whose row it is"
            on_problem(Problem(path, line, schema.person, why=why))
    return persons


def _read_column(file: _File, column: AnyColumn, texts: Texts, survey: NumberSurvey) -> Floats:
    """Reads one column, float64 [n], with NaN for missing and unfit values; or `_NotPlain`."""
    in_rows = texts.column(column.name)
    known: dict[str, float] | None = None
    is_plain = not str((file.formats or {}).get(column.name, ""))
    if is_plain and isinstance(column, NumericColumn):
        of_column = None if column.name in texts.typed else survey
        known = _plain_values(column, in_rows, of_column, is_target=column.name == file.target)
        if known is None and file.formats is None:
            raise _NotPlain
    elif isinstance(column, MomentColumn) and file.formats is None:
        if has_two_ways(in_rows):
            raise _NotPlain
        _warn_of_form(file.path, column, form_seen(in_rows))
    if known is None:
        known = _values(file, column, texts)
    return np.fromiter(map(known.__getitem__, in_rows), dtype=np.float64, count=len(in_rows))


def _values(file: _File, column: AnyColumn, texts: Texts) -> dict[str, float]:
    """Reads each different text of a column, and reports those that do not fit, which are NaN."""
    codes: dict[str, float] = {}
    if not isinstance(column, ScaledColumn):
        codes = {text: float(code) for code, text in enumerate(column.choices)}
        codes |= {cell(text): code for text, code in codes.items()}  # as mdgan writes CSV
        if isinstance(column, YesNoColumn):
            codes = {"True": 1.0, "False": 0.0} | codes  # as Parquet has them
    reader, in_rows = _Reader(column, codes, file, commas=texts.commas), texts.column(column.name)
    known, refused = dict[str, float](), dict[str, str]()
    for text in dict.fromkeys(in_rows):
        try:
            known[text] = reader.value(text.strip())
        except ValueError as error:
            known[text], refused[text] = np.nan, str(error)
    if refused:
        for text, line in zip(in_rows, texts.lines, strict=True):
            if refused.get(text):
                file.on_problem(Problem(file.path, line, column.name, why=refused[text]))
    if reader.strays:
        file.strays[column.name].update(t for t in map(str.strip, in_rows) if t in reader.strays)
    return known


def _plain_values(
    column: NumericColumn, in_rows: Sequence[str], survey: NumberSurvey | None, *, is_target: bool
) -> dict[str, float] | None:
    """Reads each text of a column fast; None if one is not plain. Parquet needs no survey."""
    known = dict.fromkeys(in_rows, np.nan)
    codes = column.missing or ()
    texts = [text for text in known if text not in MISSING and text not in codes]
    if len(texts) < len(known) and (is_target or not column.may_be_missing):
        return None
    plain = survey or NumberSurvey()
    if not plain.add_plain(texts) or (survey and column.decimal == "," and plain.has_points):
        return None
    try:
        numbers = list(map(float, texts))  # they have only digits, points, signs and exponents
    except ValueError:
        return None
    if isinstance(column, NumberColumn):
        numbers = [round(number, column.decimals) for number in numbers]
    elif not all(map(float.is_integer, numbers)):
        return None
    low, high = column.bounds
    if numbers and not (low <= min(numbers) and max(numbers) <= high):
        return None
    if codes and not {*numbers}.isdisjoint(parse_numbers(codes)):
        return None
    known.update(zip(texts, numbers, strict=True))
    return known


class _Reader:
    """Reads single texts of a column in the file's number format.

    Args:
        codes: the code of each category, by every text that files may write for it.
    """

    def __init__(
        self, column: AnyColumn, codes: dict[str, float], file: _File, *, commas: bool
    ) -> None:
        self._column, self._codes, self._commas = column, codes, commas
        self._is_target = column.name == file.target
        self._format = (file.formats or {}).get(column.name, NumberFormat())
        self._missing = frozenset(column.missing or ())
        self._missing_numbers = parse_numbers(self._missing)
        self._other = getattr(column, "other", "")
        self.strays = set[str]()  # texts that count as the "other" category

    def value(self, text: str) -> float:
        """Reads a text; NaN if missing. A ValueError says why not, unless the user knows it."""
        text = normalize("NFC", text)
        bare = without_formula(text)
        if bare in self._missing or (bare in MISSING and text not in self._codes):
            return self._nothing()
        column = self._column
        if not isinstance(column, ScaledColumn):
            # A program that has only floats for numbers with gaps writes 1 as 1.0.
            plain = number_text(bare, self._commas)
            tried = text, bare, plain, plain.removesuffix(".0")
            matching = (self._codes[each] for each in tried if each in self._codes)
            if (code := next(matching, None)) is None and self._other:
                self.strays.add(text)
                return self._codes[self._other]
            if code is None:
                sign = strange_sign(text)
                raise ValueError(f"{shown(text)!r} is none of its categories{sign}")
            return code
        if isinstance(self._format, Undecided):
            raise ValueError
        try:
            if isinstance(column, NumericColumn):
                return self._number(bare)
            return self._nothing() if column.is_missing_code(bare) else column.read(bare)
        except ValueError as error:
            is_hard = "," in text and isinstance(column, NumericColumn) and "is no" in str(error)
            hint = "; write a decimal point, and no other points or commas" if is_hard else ""
            raise ValueError(f"{shown(text)!r} {error}{hint}") from None

    def _nothing(self) -> float:
        """NaN, if the column may be missing."""
        if self._is_target:
            raise ValueError("is missing, and every row needs the target")
        if not self._column.may_be_missing:
            raise ValueError("is missing, and the schema does not let it be")
        return np.nan

    def _number(self, text: str) -> float:
        column, fmt = self._column, self._format
        assert isinstance(column, NumericColumn)
        assert isinstance(fmt, NumberFormat)
        if (numeral := parse_numeral(text)) is None:
            return column.read(text)
        if numeral.unit != fmt.unit:
            raise ValueError(unit_problem(numeral.unit, fmt.unit, column.unit or ""))
        plain = fmt.plain(numeral)
        if plain is None:
            others = f", as the others are written: with {fmt}" if str(fmt) else ""
            raise ValueError(f"is no {column.kind.replace('whole', 'whole number')}{others}")
        codes = self._missing_numbers
        is_code = bool(codes) and not numeral.end and parse_number(plain) in codes
        return self._nothing() if is_code else column.read(plain)
