"""A site's map, which stays there: its files' names for columns, values and units of the schema."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from mdgan.errors import BadInput, one_line, printable
from mdgan.samples.table.columns import NumberColumn, NumericColumn, ScaledColumn
from mdgan.samples.table.numbers import number_text, parse_number
from mdgan.samples.table.schema import AnyColumn, Schema
from mdgan.samples.table.texts import Texts, are_default_names, texts_of_file
from mdgan.storage.foreign_file import read_whole

_MOST_BYTES = 1 << 20
_MOST_DECIMALS = 12
Floats = NDArray[np.float64]


class MappedColumn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which column of the schema a column of a site's files is, and how to convert its values."""

    name: str  # the schema's name; empty for a column that is not read
    values: dict[str, str] = {}  # from the site's spelling to the schema's
    missing: tuple[str, ...] = ()  # texts that stand for a missing value at this site
    unit: str = ""  # the unit that the site's files write, such as lb
    # The schema's number is the site's × factor + offset, rounded to `decimals`, or to the schema's
    # decimals if these are fewer.
    factor: float | msgspec.UnsetType = UNSET
    offset: float = 0.0
    decimals: int = _MOST_DECIMALS
    why: str = ""  # in drafts, what the author of the map should look at

    @property
    def converts(self) -> bool:
        """Whether the site's numbers have to be converted."""
        return self.factor is not UNSET or self.offset != 0

    def converted(self, number: float, decimals: int) -> float:
        """Converts a number of the site; `decimals` are those of the schema's column."""
        return round(number * (self.factor or 1) + self.offset, min(decimals, self.decimals))

    def in_schema_spelling(
        self, texts: Sequence[str], decimals: int = 0, *, commas: bool | None = None
    ) -> Sequence[str]:
        """Replaces the site's spelling of values by the schema's.

        Args:
            decimals: the decimals of the schema's column.
            commas: None leaves numbers and codes of missing values as they are. Otherwise numbers
                are converted and codes emptied; it says whether the file may write decimal commas.
        """
        known = dict[str, str]()
        for text in dict.fromkeys(texts):
            bare = normalize("NFC", text.strip())
            keys = (bare, bare.removesuffix(".0"))  # programs with only floats write 1 as 1.0
            known[text] = next((self.values[key] for key in keys if key in self.values), text)
            if commas is not None and not {*keys}.isdisjoint(self.missing):
                known[text] = ""
            elif commas is not None and self.converts:
                with suppress(ValueError):
                    number = self.converted(parse_number(number_text(bare, commas)), decimals)
                    known[text] = f"{number:.{decimals}f}"
        return [known[text] for text in texts]


class SiteMap(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The map of a site: its columns, by the names that its files have.

    Attributes:
        unsure: columns that a draft proposes and a person has to confirm. mdgan refuses a map as
            long as it has any.
    """

    about: str = ""
    columns: dict[str, MappedColumn] = {}
    unsure: dict[str, MappedColumn] = {}


def map_text(site_map: SiteMap) -> str:
    """Writes a map as the text of its file."""
    return json.dumps(msgspec.to_builtins(site_map), indent=2, ensure_ascii=False) + "\n"


def read_map(path: Path, schema: Schema) -> SiteMap:
    """Reads a map's file and checks it against a schema; BadInput if either fails."""
    content = read_map_file(path)
    try:
        decoded = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_each_once)
        site_map = msgspec.convert(decoded, SiteMap)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(path, f"is no map ({one_line(error)})") from error
    for problem in _problems_of(site_map, schema):
        raise BadInput(path, problem)
    return site_map


def read_map_file(path: Path) -> bytes:
    """Reads the bytes of a map's file. Audit logs hold their SHA-256."""
    try:
        return read_whole(path, _MOST_BYTES)
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise BadInput(path, why, "mdgan schema map drafts one") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a JSON object with names in NFC; ValueError if a name occurs twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if (name := normalize("NFC", key.strip())) in values:
            raise ValueError(f"{printable(name, 40)!r} occurs twice")
        values[name] = value
    return values


def _problems_of(site_map: SiteMap, schema: Schema) -> Iterator[str]:
    """Yields what is wrong with a map, one line for each mistake."""
    for name, mapped in site_map.unsure.items():
        yield (
            f"unsure {one_line(name)}: {one_line(mapped.why) or 'must be confirmed'}; move it to "
            '"columns" once it is right, or remove it'
        )
    known: dict[str, AnyColumn | None] = dict.fromkeys([*(schema.ignore or ())])
    known |= {column.name: column for column in schema.columns}
    known |= {schema.person: None} if schema.person else {}
    seen: dict[str, str] = {"": ""}
    for name, mapped in site_map.columns.items():
        shown, to = f"column {one_line(name)}", mapped.name
        if to and to not in known:
            yield f"{shown}: the schema has no column {printable(to, 40)!r}"
        elif to and seen.setdefault(to, name) != name:
            yield f"{shown}: is {to}, and so is {one_line(seen[to])}; leave out one"
        elif to and (problem := _column_problem(mapped, known[to])):
            yield f"{shown}: {problem}"


def _column_problem(mapped: MappedColumn, column: AnyColumn | None) -> str:
    """Finds a mistake in a mapped column; `column` is None if its values are not generated."""
    if column is None:
        has_more = mapped.values or mapped.missing or mapped.unit or mapped.converts
        return "is not generated, so nothing but its name may be mapped" if has_more else ""
    if mapped.missing and not column.may_be_missing:
        return f"has missing values, and the schema does not let {column.name} be missing"
    if (mapped.unit or mapped.converts) and not isinstance(column, NumericColumn):
        return f"has a unit or a factor, and {column.name} has no numbers"
    if not ((mapped.factor is UNSET or 0 < mapped.factor < inf) and isfinite(mapped.offset)):
        return "its factor must be a number above 0, and its offset a number"
    unit = getattr(column, "unit", UNSET)
    if mapped.unit and mapped.unit != unit and not mapped.converts:
        named = f"in {unit}" if unit else "names no unit"
        return f"is in {printable(mapped.unit, 20)}, and the schema {named}: say its factor"
    if not 0 <= mapped.decimals <= _MOST_DECIMALS:
        return f"decimals {mapped.decimals} must be 0 to {_MOST_DECIMALS}"
    for text, value in mapped.values.items():
        try:
            if not value or text in mapped.missing:
                raise ValueError('must be filled in, or stand under "missing" alone')
            if isinstance(column, ScaledColumn):
                if mapped.converts:
                    raise ValueError("cannot stand beside a factor; write numbers in the file")
                column.read(value)
            elif value not in column.choices:
                raise ValueError(f"is none of {printable(', '.join(column.choices), 100)}")
        except ValueError as error:
            return f"{printable(text, 40)!r} is {printable(value, 40)!r}, which {error}"
    return ""


class SiteView:
    """Reads a site's files with the names and spelling of the schema.

    Args:
        site_map: the site's map; None if its files use the schema's names and values.

    Attributes:
        at_site: the schema with the site's units, bounds and codes of missing values.
        changes: whether reading may change the texts of a file.
    """

    def __init__(self, schema: Schema, site_map: SiteMap | None = None) -> None:
        self.schema = schema
        self.mapped = {} if site_map is None else site_map.columns
        self.changes = bool(self.mapped or schema.ignore)
        self._names = {mapped.name: name for name, mapped in self.mapped.items()}  # at the site
        self._left_out = frozenset(schema.ignore or ())
        self._of_schema = {column.name: column for column in schema.columns}
        columns = tuple(map(self._column_at_site, schema.columns))
        self.at_site = replace(schema, columns=columns)

    def _map_of(self, column: AnyColumn) -> MappedColumn | None:
        return self.mapped.get(self._names.get(column.name, ""))

    def _column_at_site(self, column: AnyColumn) -> AnyColumn:
        if (mapped := self._map_of(column)) is None:
            return column
        codes = tuple(dict.fromkeys([*(column.missing or ()), *mapped.missing])) or UNSET
        if not isinstance(column, NumericColumn):
            return replace(column, missing=codes)
        unit = mapped.unit or (UNSET if mapped.converts else column.unit)
        if not mapped.converts:
            return replace(column, missing=codes, unit=unit)
        # A converted number may lie half a decimal outside the bounds, and is rounded to them.
        half = 0.5 * 10.0 ** -getattr(column, "decimals", 0)
        low, high = column.bounds
        return NumberColumn(
            name=column.name,
            may_be_missing=column.may_be_missing,
            missing=codes,
            unit=unit,
            decimal=column.decimal,
            low=(low - half - mapped.offset) / (mapped.factor or 1),
            high=(high + half - mapped.offset) / (mapped.factor or 1),
            decimals=_MOST_DECIMALS,
        )

    def to_schema_unit(self, place: int, values: Floats) -> Floats:
        """Converts the values of the column at `place` from the file's unit to the schema's."""
        column = self.schema.columns[place]
        mapped = self._map_of(column)
        if mapped is None or not (mapped.converts and isinstance(column, NumericColumn)):
            return values
        decimals = getattr(column, "decimals", 0)
        known = {v: mapped.converted(v, decimals) for v in set(values[~np.isnan(values)].tolist())}
        return np.clip([known.get(value, np.nan) for value in values.tolist()], *column.bounds)

    def name_in_messages(self, name: str) -> str:
        """Names a column of the schema for a message about a file, with the file's own name."""
        at_site = self._names.get(name, name)
        return name if at_site == name else f"{name} ({printable(at_site, 40)} in the file)"

    def texts_of(self, path: Path, *, converts: bool = False) -> Iterator[Texts]:
        """Yields the texts of a file, in pieces, with the schema's names and spelling.

        Args:
            converts: whether to convert plain numbers to the schema's unit as well, and to empty
                codes of missing values.
        """
        for texts in texts_of_file(path, no_header=are_default_names(self.schema.names)):
            yield self.translate(texts, path, converts=converts) if self.changes else texts

    def translate(self, piece: Texts, path: Path, *, converts: bool = False) -> Texts:
        """Translates a piece of a file; see `texts_of`. BadInput if it lacks a mapped column."""
        for name, lacking in self.mapped.items():
            column = self._of_schema.get(lacking.name)
            if name in piece.names or column is None:
                continue
            if lacking.name in piece.names or not column.may_be_missing:
                raise BadInput(path, f"has no column {one_line(name)}, which the map names")
        names, columns = list[str](), list[Sequence[str]]()
        for name, texts in zip(piece.names, piece.columns, strict=True):
            mapped = self.mapped.get(name)
            as_name = name if mapped is None else mapped.name
            if as_name not in self._left_out and (as_name or mapped is None):
                names.append(as_name)
                if mapped is not None and (mapped.values or converts):
                    decimals = getattr(self._of_schema.get(as_name), "decimals", 0)
                    commas = piece.commas if converts else None
                    texts = mapped.in_schema_spelling(texts, decimals, commas=commas)
                columns.append(texts)
        typed = frozenset(self.mapped[n].name if n in self.mapped else n for n in piece.typed)
        return piece._replace(names=names, columns=columns, typed=typed)
