"""What a site calls columns, values and units of the schema; it stays at the site."""

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
from mdgan.samples.table.numbers import number_of, number_text
from mdgan.samples.table.schema import AnyColumn, Schema
from mdgan.samples.table.texts import Texts, are_numbered, texts_of_file
from mdgan.storage.foreign_file import read_whole

_MOST_BYTES = 1 << 20
_MOST_DECIMALS = 12
Floats = NDArray[np.float64]


class MappedColumn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a column of a site's files is in the schema."""

    name: str  # there; empty for a column that is not read
    values: dict[str, str] = {}  # from the site's spelling to the schema's
    missing: tuple[str, ...] = ()  # texts that stand for a missing value at this site
    unit: str = ""  # that stands with numbers at this site, such as lb
    # The schema's number is the site's × factor + offset, rounded to so many decimals.
    factor: float | msgspec.UnsetType = UNSET
    offset: float = 0.0
    decimals: int = _MOST_DECIMALS  # or as many as the schema has, if that is fewer
    why: str = ""  # what its author should look at

    @property
    def converts(self) -> bool:
        """Whether numbers are others in the schema."""
        return self.factor is not UNSET or self.offset != 0

    def in_schema(self, number: float, decimals: int) -> float:
        """The schema's number, of so many decimals at most."""
        return round(number * (self.factor or 1) + self.offset, min(decimals, self.decimals))

    def spelt(
        self, texts: Sequence[str], decimals: int = 0, *, commas: bool | None = None
    ) -> Sequence[str]:
        """Texts of the site as the schema spells them.

        Args:
            decimals: of the column of the schema.
            commas: as in `Texts`, to write missing codes and plain numbers so, too; None: not.
        """
        known = dict[str, str]()
        for text in dict.fromkeys(texts):
            bare = normalize("NFC", text.strip())
            keys = (bare, bare.removesuffix(".0"))  # as programs write 1 that have only floats
            known[text] = next((self.values[key] for key in keys if key in self.values), text)
            if commas is not None and not {*keys}.isdisjoint(self.missing):
                known[text] = ""
            elif commas is not None and self.converts:
                with suppress(ValueError):
                    number = self.in_schema(number_of(number_text(bare, commas)), decimals)
                    known[text] = f"{number:.{decimals}f}"
        return [known[text] for text in texts]


class SiteMap(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The map of a site: its columns, by the names that its files have.

    Attributes:
        unsure: what a draft proposes and a person has to confirm; with any of these it is no map.
    """

    about: str = ""
    columns: dict[str, MappedColumn] = {}
    unsure: dict[str, MappedColumn] = {}


def map_text(site_map: SiteMap) -> str:
    """The file of a map."""
    return json.dumps(msgspec.to_builtins(site_map), indent=2, ensure_ascii=False) + "\n"


def read_map(path: Path, schema: Schema) -> SiteMap:
    """Reads a map's file, and checks that it leads to a schema."""
    content = read_map_file(path)
    try:
        given = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_each_once)
        found = msgspec.convert(given, SiteMap)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(path, f"is no map ({one_line(error)})") from error
    for problem in _problems_of(found, schema):
        raise BadInput(path, problem)
    return found


def read_map_file(path: Path) -> bytes:
    """What a map's file holds; its SHA-256 stands in audit logs."""
    try:
        return read_whole(path, _MOST_BYTES)
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise BadInput(path, why, "mdgan schema map drafts one") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if (name := normalize("NFC", key.strip())) in found:
            raise ValueError(f"{printable(name, 40)!r} occurs twice")
        found[name] = value
    return found


def _problems_of(site_map: SiteMap, schema: Schema) -> Iterator[str]:
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
        elif to and (problem := _of_column(mapped, known[to])):
            yield f"{shown}: {problem}"


def _of_column(mapped: MappedColumn, column: AnyColumn | None) -> str:
    """What is wrong with a mapped column; `column` is None if its values are not generated."""
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
    """What of a file is read, under the names and in the spelling of a schema.

    Args:
        site_map: what the file says otherwise; None for nothing.

    Attributes:
        at_site: the schema, with columns as the file writes their values.
        changes: whether it may be another one than the file.
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
        half = 0.5 * 10.0 ** -getattr(column, "decimals", 0)  # what rounding takes in
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

    def converted(self, place: int, values: Floats) -> Floats:
        """The values of a column of the schema from those that the file has, in its unit."""
        column = self.schema.columns[place]
        mapped = self._map_of(column)
        if mapped is None or not (mapped.converts and isinstance(column, NumericColumn)):
            return values
        decimals = getattr(column, "decimals", 0)
        known = {v: mapped.in_schema(v, decimals) for v in set(values[~np.isnan(values)].tolist())}
        return np.clip([known.get(value, np.nan) for value in values.tolist()], *column.bounds)

    def shown(self, name: str) -> str:
        """A column of the schema as a message about a file names it."""
        given = self._names.get(name, name)
        return name if given == name else f"{name} ({printable(given, 40)} in the file)"

    def texts_of(self, path: Path, *, converts: bool = False) -> Iterator[Texts]:
        """The texts of a file, in pieces, with numbers as the file has them.

        Args:
            converts: whether to give plain numbers as the schema has them, and missing codes empty.
        """
        for texts in texts_of_file(path, no_header=are_numbered(self.schema.names)):
            yield self.read(texts, path, converts=converts) if self.changes else texts

    def read(self, given: Texts, path: Path, *, converts: bool = False) -> Texts:
        """A piece of a file as the schema has it; see `texts_of`."""
        for name, lacking in self.mapped.items():
            column = self._of_schema.get(lacking.name)
            if name in given.names or column is None:
                continue
            if lacking.name in given.names or not column.may_be_missing:
                raise BadInput(path, f"has no column {one_line(name)}, which the map names")
        names, columns = list[str](), list[Sequence[str]]()
        for name, texts in zip(given.names, given.columns, strict=True):
            mapped = self.mapped.get(name)
            as_name = name if mapped is None else mapped.name
            if as_name not in self._left_out and (as_name or mapped is None):
                names.append(as_name)
                if mapped is not None and (mapped.values or converts):
                    decimals = getattr(self._of_schema.get(as_name), "decimals", 0)
                    commas = given.commas if converts else None
                    texts = mapped.spelt(texts, decimals, commas=commas)
                columns.append(texts)
        typed = frozenset(self.mapped[n].name if n in self.mapped else n for n in given.typed)
        return given._replace(names=names, columns=columns, typed=typed)
