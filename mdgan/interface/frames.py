"""DataFrames as tables: what each column says goes into a file, or is refused in a line."""

import numbers
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from mdgan.errors import BadInput, one_line, users_code
from mdgan.inspect.schema_draft import draft_schema
from mdgan.interface.data import is_frame
from mdgan.samples.table.schema import schema_text

_LIKE_TRAIN = "must be a DataFrame with the columns of train"
_REFUSED = {
    "c": ("holds complex numbers", "give two columns, .real and .imag"),
    "m": ("holds durations", "give numbers, such as .dt.total_seconds()"),
}
_NO_NUMBERS = (complex, np.complexfloating, timedelta, np.timedelta64)
_KINDS: dict[str, type | tuple[type, ...]] = {
    "texts": str,
    "true and false": (bool, np.bool_),
    "numbers": numbers.Number,
    "dates": date,
}
_LABEL = "label"
"""What `mdgan.Data` calls the target unless the user says."""


class Frames:
    """Rows of tables that lie in a folder, as `--dataset table` reads them.

    Args:
        parts: `train`, and `held_out` if there is one.
        target: the column that rows are asked for by; one called `label` need not be there.

    Raises:
        BadInput: a column says nothing that a table can hold, none is left for a schema, or the
            frames differ in their columns.
    """

    def __init__(self, parts: Mapping[str, Any], target: object, folder: Path) -> None:
        told: list[str] = []
        plain = {what: _plain(what, part, told) for what, part in parts.items()}
        train = plain["train"]
        names = [*train.columns]
        for what, part in plain.items():
            if differing := {*part.columns} ^ {*names}:
                which = ", ".join(map(one_line, sorted(differing)))
                raise BadInput(what, _LIKE_TRAIN, f"look at {which}")
        asked = normalize("NFC", str(target).strip())
        if asked not in names and asked != _LABEL:
            shown = ", ".join(map(one_line, names[:20]))
            raise BadInput(f"label={target!r:.80}", "is no column", f"there are {shown}")
        self.target = asked if asked in names else None
        self._files = {what: folder / f"{what}.csv" for what in parts}
        with users_code("train"):
            train.to_csv(self._files["train"], index=False)
        try:
            found = draft_schema(self._files["train"])
        except BadInput as error:
            raise BadInput("train", error.why or error.what, error.way_out) from error
        schema = found.schema
        for line in found.left_out:
            if self.target and line.startswith(f"{self.target}: "):
                raise BadInput(f"label={target!r:.80}", line.removeprefix(f"{self.target}: "))
        self.schema = folder / "schema.json"
        self.schema.write_text(schema_text(schema), encoding="utf-8")
        names = [*schema.names, *([schema.person] if schema.person else [])]
        told += [line for line in found.warnings if " are read " in line or " taken as " in line]
        for what, part in plain.items():
            with users_code(what):
                part[names].to_csv(self._files[what], index=False)
        rows = " and ".join(f"{len(part):,}" for part in parts.values())
        self.about = f"{rows} rows of a table with {len(names)} columns"
        self.about += f", {self.target} to be predicted" if self.target else ""
        self.about += f"; left out: {'; '.join(found.left_out)}" if found.left_out else ""
        self.about += "".join(f"; {line}" for line in dict.fromkeys(told))

    @property
    def places(self) -> dict[str, Any]:
        """The settings that say where the rows lie."""
        flags = {"train": "data_dir", "held_out": "held_out"}
        return {flags[what]: str(file) for what, file in self._files.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which a run trains on the rows."""
        told = {} if self.target is None else {"target": self.target}
        return {"dataset": "table", "schema": str(self.schema), **told, **self.places}


def _plain(what: str, part: Any, told: list[str]) -> Any:
    """A frame whose names are texts, and whose values a file can hold.

    Args:
        told: what the user should know goes there, a line each.
    """
    if not is_frame(part):
        raise BadInput(what, _LIKE_TRAIN)
    if getattr(part.columns, "nlevels", 1) > 1:
        way_out = "give each column one name, such as '_'.join(name)"
        raise BadInput(what, "its columns have names of several levels", way_out)
    names = [_name(what, name) for name in part.columns]
    if not names:
        raise BadInput(what, "has no column")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"{what}, column {one_line(twice[0])}", "a name occurs twice", "rename one")
    if own := [str(name) for name in getattr(part.index, "names", ()) if name is not None]:
        told.append(f"the index {', '.join(map(one_line, own))} is no column; reset_index makes it")
    found = part.set_axis(names, axis=1)
    for name in names:
        column = f"{what}, column {one_line(name)}"
        with users_code(column):
            found[name] = _values(column, found[name], told)
    return found


def _name(what: str, given: object) -> str:
    """The name of a column; numbers and texts with spaces around them are names, too."""
    name = str(given).strip() if isinstance(given, str | numbers.Number | date) else ""
    name = normalize("NFC", name)  # as files are read
    if not name or not name.isprintable() or given != given:
        raise BadInput(what, f"a column is called {given!r:.40}", "give it a name")
    return name


def _values(what: str, column: Any, told: list[str]) -> Any:
    """The values of a column as a file can hold them."""
    dtype = getattr(column.dtype, "subtype", column.dtype)
    if (kind := getattr(dtype, "kind", "O")) in _REFUSED:
        raise BadInput(what, *_REFUSED[kind])
    if kind == "f" and np.isinf(column.to_numpy(dtype=float, na_value=np.nan)).any():
        raise BadInput(what, "holds infinite numbers", "make them missing, with .replace")
    if (zone := getattr(dtype, "tz", None)) is not None:
        told.append(f"{column.name} has the times of {zone}, without the zone")
        return column.dt.tz_localize(None)
    if not hasattr(dtype, "categories") and not (isinstance(dtype, np.dtype) and kind == "O"):
        return column
    kinds = {_kind(what, each) for each in set(map(type, column.dropna()))}
    if len(kinds) > 1:
        way_out = "make it one kind, such as .astype(str)"
        raise BadInput(what, f"mixes {' and '.join(sorted(kinds))}", way_out)
    return column


def _kind(what: str, of: type) -> str:
    """What kind of value a class is, in a word or two."""
    is_many = hasattr(of, "__len__") and not issubclass(of, str)
    if is_many or issubclass(of, _NO_NUMBERS):
        raise BadInput(what, f"holds values of type {of.__name__}", "give a number or text a cell")
    for kind, types in _KINDS.items():
        if issubclass(of, types):
            return kind
    return of.__name__
