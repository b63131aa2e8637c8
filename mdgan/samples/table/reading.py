"""Files of rows, CSV and Parquet, read against a schema; nothing is guessed."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.samples.table.moments import FormSurvey, form_seen, has_two_ways
from mdgan.samples.table.numbers import (
    Survey,
    Undecided,
    Writing,
    about_unit,
    number_of,
    number_text,
    numbers_of,
    parsed,
    unwrapped,
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
    say,
    say_strays,
    shown,
)
from mdgan.storage.csv_file import cell

Floats = NDArray[np.float64]
Writings = dict[str, Writing | Undecided]
"""By column of numbers, how a file writes them."""


def read_rows(
    path: Path,
    schema: Schema,
    target: str | None = None,
    on_problem: OnProblem = refuse,
    site_map: SiteMap | None = None,
) -> Rows:
    """Reads a file, or all files of a folder in the order of their names.

    Args:
        target: a column that no row may lack.
        on_problem: is told of each value that does not fit; such values are then missing.
        site_map: what the files say in other words than the schema; None for nothing.

    Raises:
        BadInput: by `refuse`, at the first problem; by any `on_problem` if nothing can be read.
    """
    view = SiteView(schema, site_map)

    def on_shown(problem: Problem) -> None:
        on_problem(problem._replace(column=view.shown(problem.column)))

    parts = [_read_file(file, view, target, on_problem=on_shown) for file in files_of(path)]
    values, persons = (np.concatenate(each) for each in zip(*parts, strict=True))
    rows = Rows(schema, values, persons if schema.person else None)
    if not len(rows):
        raise BadInput(path, "has no row", "give a file with rows below its header")
    return rows


def _read_file(
    path: Path, view: SiteView, target: str | None, on_problem: OnProblem
) -> tuple[Floats, NDArray[np.object_]]:
    """The values of a file's rows, and whose each is: empty texts if the schema does not say."""
    file = _File(path, view, view.at_site, target, rules=Rules(view.schema), on_problem=_give_up)
    with suppress(_NotPlain):
        return _read_pieces(file)
    as_written, writings = _as_written(file)
    for column, writing in writings.items():
        if isinstance(writing, Undecided):
            on_problem(Problem(path, writing.line, column, str(writing)))
        elif str(writing):
            say(f"{path}, column {shown(column)}: numbers are read with {writing}")
    file = file._replace(schema=as_written, on_problem=on_problem, writings=writings)
    return _read_pieces(file)


class _NotPlain(Exception):
    """A text is not what most are, so the whole file has to be looked at before it is read."""


def _give_up(_: Problem) -> None:
    raise _NotPlain


class _File(NamedTuple):
    """A file, and how it is read.

    Attributes:
        schema: as the file has it; in the second pass its columns of dates have the file's form.
        writings: of columns of numbers; None at first, when all are taken to be plain.
        strays: how many rows have each text, by column, that counts as its other category.
    """

    path: Path
    view: SiteView
    schema: Schema
    target: str | None
    rules: Rules  # of the schema as it was agreed on
    on_problem: OnProblem
    writings: Writings | None = None
    strays: Mapping[str, Counter[str]] = MappingProxyType({})

    def pieces(self) -> Iterator[Texts]:
        """Its texts, by the names that the schema has."""
        written = {cell(name): name for name in self.schema.names}  # as mdgan writes CSV
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
    say_strays(file.path, file.strays)
    return np.concatenate(pieces), np.array(persons, dtype=object)


def values_of_file(path: Path, schema: Schema) -> Iterator[Floats]:
    """The values of a file's rows, [n, columns], in pieces; NaN for one that does not fit."""
    view = SiteView(schema, None)
    file = _File(path, view, view.at_site, None, rules=Rules(schema), on_problem=lambda _: None)
    as_written, writings = _as_written(file)
    for values, _ in _pieces_of(file._replace(schema=as_written, writings=writings)):
        yield values


def _pieces_of(file: _File) -> Iterator[tuple[Floats, list[str]]]:
    path, schema, misfits, is_first, commas = file.path, file.schema, set[int](), True, False

    def tell(problem: Problem) -> None:
        misfits.add(problem.row)
        file.on_problem(problem)

    telling = file._replace(on_problem=tell)
    surveys = {column.name: Survey() for column in schema.columns}
    for texts in file.pieces():
        if is_first:
            check_header(path, texts.names, schema, on_problem=file.on_problem)
            is_first = False
        values = np.full((len(texts.lines), len(schema.columns)), np.nan)
        for place, column in enumerate(schema.columns):
            if column.name in texts.names:
                read = _read_column(telling, column, texts, surveys[column.name])
                values[:, place] = file.view.converted(place, read)
        for row, name, why in broken_rules(file.rules, values):
            if texts.lines[row] not in misfits:  # a value that does not fit is not missing
                file.on_problem(Problem(path, texts.lines[row], name, why=why))
        yield values, _persons(path, texts, schema, on_problem=file.on_problem)
        commas = texts.commas
    if file.writings is None and any(s.may_be_thousands(commas=commas) for s in surveys.values()):
        raise _NotPlain
    if texts.num_blank:
        say(blank_rows(path, texts.num_blank))


def _as_written(file: _File) -> tuple[Schema, Writings]:
    """The schema with the dates' forms of a file, and how that writes numbers, from all texts."""
    surveys, forms = defaultdict[str, Survey](Survey), defaultdict[str, FormSurvey](FormSurvey)
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
    columns, writings = list[AnyColumn](), Writings()
    for column in schema.columns:
        name = column.name
        if isinstance(column, MomentColumn):
            form, example = forms[name].form(column.written_as)
            _say_form(
                file.path, column, form, f", as {shown(example)!r} has to be" if example else ""
            )
            column = replace(column, form=form) if example else column
        elif isinstance(column, NumericColumn) and name not in typed:
            said = {"decimal": column.decimal or "", "unit": column.unit or ""}
            whole = isinstance(column, WholeColumn)
            try:
                writings[name] = surveys[name].writing(commas=commas, whole=whole, **said)
            except Undecided as why:
                writings[name] = why
        columns.append(column)
    return replace(schema, columns=tuple(columns)), writings


def _say_form(path: Path, column: MomentColumn, form: str, since: str = "") -> None:
    if form and form != column.written_as:
        say(f"{path}, column {shown(column.name)}: dates are read as {form}{since}")


def _present(column: AnyColumn, texts: Texts) -> list[str]:
    """The different texts of a column that are not missing."""
    codes = MISSING | frozenset(column.missing or ())
    given = dict.fromkeys(texts.column(column.name))
    return [text for text in given if text not in codes and text.strip()]


def _persons(path: Path, texts: Texts, schema: Schema, on_problem: OnProblem) -> list[str]:
    """Whose each row is; empty texts if that is not known."""
    if not schema.person or schema.person not in texts.names:
        return [""] * len(texts.lines)
    given = texts.column(schema.person)
    # A program that has only floats for numbers with gaps writes 1 as 1.0.
    persons = [" ".join(normalize("NFC", text).split()).removesuffix(".0") for text in given]
    for line, person in zip(texts.lines, persons, strict=True):
        if person in MISSING:
            why = "is missing, and the schema names it as the person whose row it is"
            on_problem(Problem(path, line, schema.person, why=why))
    return persons


def _read_column(file: _File, column: AnyColumn, texts: Texts, survey: Survey) -> Floats:
    """The values of one column, float64 [n], NaN where one is missing, or does not fit."""
    given = texts.column(column.name)
    known: dict[str, float] | None = None
    is_plain = not str((file.writings or {}).get(column.name, ""))
    if is_plain and isinstance(column, NumericColumn):
        of_column = None if column.name in texts.typed else survey
        known = _plain_values(column, given, of_column, is_target=column.name == file.target)
        if known is None and file.writings is None:
            raise _NotPlain
    elif isinstance(column, MomentColumn) and file.writings is None:
        if has_two_ways(given):
            raise _NotPlain
        _say_form(file.path, column, form_seen(given))
    if known is None:
        known = _values(file, column, texts)
    return np.fromiter(map(known.__getitem__, given), dtype=np.float64, count=len(given))


def _values(file: _File, column: AnyColumn, texts: Texts) -> dict[str, float]:
    """The value of each text of a column, NaN if it has none; those that do not fit are told."""
    codes: dict[str, float] = {}
    if not isinstance(column, ScaledColumn):
        codes = {text: float(code) for code, text in enumerate(column.choices)}
        codes |= {cell(text): code for text, code in codes.items()}  # as mdgan writes CSV
        if isinstance(column, YesNoColumn):
            codes = {"True": 1.0, "False": 0.0} | codes  # as Parquet has them
    reader, given = _Reader(column, codes, file, commas=texts.commas), texts.column(column.name)
    known, refused = dict[str, float](), dict[str, str]()
    for text in dict.fromkeys(given):
        try:
            known[text] = reader.value(text.strip())
        except ValueError as error:
            known[text], refused[text] = np.nan, str(error)
    if refused:
        for text, line in zip(given, texts.lines, strict=True):
            if refused.get(text):
                file.on_problem(Problem(file.path, line, column.name, why=refused[text]))
    if reader.strays:
        file.strays[column.name].update(t for t in map(str.strip, given) if t in reader.strays)
    return known


def _plain_values(
    column: NumericColumn, given: Sequence[str], survey: Survey | None, *, is_target: bool
) -> dict[str, float] | None:
    """The value of each text of a column; None if one is not plain, or does not fit.

    Args:
        survey: takes in what points may mean; None if the file says itself what they mean.
    """
    known = dict.fromkeys(given, np.nan)
    codes = column.missing or ()
    texts = [text for text in known if text not in MISSING and text not in codes]
    if len(texts) < len(known) and (is_target or not column.may_be_missing):
        return None
    plain = survey or Survey()
    if not plain.add_plain(texts) or (survey and column.decimal == "," and plain.has_points):
        return None
    try:
        numbers = list(map(float, texts))  # of nothing but digits, points, signs and exponents
    except ValueError:
        return None
    if isinstance(column, NumberColumn):
        numbers = [round(number, column.decimals) for number in numbers]
    elif not all(map(float.is_integer, numbers)):
        return None
    low, high = column.bounds
    if numbers and not (low <= min(numbers) and max(numbers) <= high):
        return None
    if codes and not {*numbers}.isdisjoint(numbers_of(codes)):
        return None
    known.update(zip(texts, numbers, strict=True))
    return known


class _Reader:
    """Reads single texts of a column, as its file writes them.

    Args:
        codes: of categories, by how files may write them.
        commas: whether a comma may stand before decimals in the file.
    """

    def __init__(
        self, column: AnyColumn, codes: dict[str, float], file: _File, *, commas: bool
    ) -> None:
        self._column, self._codes, self._commas = column, codes, commas
        self._is_target = column.name == file.target
        self._writing = (file.writings or {}).get(column.name, Writing())
        self._missing = frozenset(column.missing or ())
        self._missing_numbers = numbers_of(self._missing)
        self._other = getattr(column, "other", UNSET)
        self.strays = set[str]()  # texts that count as the other category

    def value(self, text: str) -> float:
        """The value of a text; raises ValueError in words, or without if it has been told."""
        text = normalize("NFC", text)
        bare = unwrapped(text)
        if bare in self._missing or (bare in MISSING and text not in self._codes):
            return self._nothing()
        column = self._column
        if not isinstance(column, ScaledColumn):
            # A program that has only floats for numbers with gaps writes 1 as 1.0.
            plain = number_text(bare, self._commas)
            tried = text, bare, plain, plain.removesuffix(".0")
            found = (self._codes[each] for each in tried if each in self._codes)
            if (code := next(found, None)) is None and self._other:
                self.strays.add(text)
                return self._codes[self._other]
            if code is None:
                sign = strange_sign(text)
                raise ValueError(f"{shown(text)!r} is none of its categories{sign}")
            return code
        if isinstance(self._writing, Undecided):
            raise ValueError
        try:
            if isinstance(column, NumericColumn):
                return self._number(bare)
            return self._nothing() if column.is_code(bare) else column.read(bare)
        except ValueError as error:
            is_hard = "," in text and isinstance(column, NumericColumn) and "is no" in str(error)
            hint = "; write a decimal point, and no other points or commas" if is_hard else ""
            raise ValueError(f"{shown(text)!r} {error}{hint}") from None

    def _nothing(self) -> float:
        if self._is_target:
            raise ValueError("is missing, and every row needs the target")
        if not self._column.may_be_missing:
            raise ValueError("is missing, and the schema does not let it be")
        return np.nan

    def _number(self, text: str) -> float:
        column, writing = self._column, self._writing
        assert isinstance(column, NumericColumn)
        assert isinstance(writing, Writing)
        if (numeral := parsed(text)) is None:
            return column.read(text)
        if numeral.unit != writing.unit:
            raise ValueError(about_unit(numeral.unit, writing.unit, column.unit or ""))
        plain = writing.plain(numeral)
        if plain is None:
            others = f", as the others are written: with {writing}" if str(writing) else ""
            raise ValueError(f"is no {column.kind.replace('whole', 'whole number')}{others}")
        if self._missing_numbers and not numeral.end and number_of(plain) in self._missing_numbers:
            return self._nothing()
        return column.read(plain)
