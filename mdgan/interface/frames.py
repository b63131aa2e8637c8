"""Writes DataFrames as CSV files with a schema for `mdgan.Data`, or refuses them in a line."""

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

_MUST_BE_LIKE_TRAIN = "must be a DataFrame with the columns of train"
_REFUSED_DTYPES = {
    "c": ("holds complex numbers", "give two columns, .real and .imag"),
    "m": ("holds durations", "give numbers, such as .dt.total_seconds()"),
}
_REFUSED_TYPES = (complex, np.complexfloating, timedelta, np.timedelta64)
_TYPES_BY_KIND: dict[str, type | tuple[type, ...]] = {
    "texts": str,
    "true and false": (bool, np.bool_),
    "numbers": numbers.Number,
    "dates": date,
}
_DEFAULT_TARGET = "label"
"""The name of the target if the user gives none; a frame need not have this column."""


class Frames:
    """Rows of DataFrames in a folder, written as `--dataset table` reads them.

    Args:
        parts: `train`, and `held_out` if the user has it.
        target: the column whose values can be asked for when sampling; one called `label` may be
            absent.

    Raises:
        BadInput: no table can hold a column, the schema would have no column, or the frames have
            different columns.
    """

    def __init__(self, parts: Mapping[str, Any], target: object, folder: Path) -> None:
        remarks: list[str] = []
        frames = {part: _clean_frame(part, frame, remarks) for part, frame in parts.items()}
        train = frames["train"]
        names = [*train.columns]
        for part, frame in frames.items():
            if differing := {*frame.columns} ^ {*names}:
                which = ", ".join(map(one_line, sorted(differing)))
                raise BadInput(part, _MUST_BE_LIKE_TRAIN, f"look at {which}")
        column = normalize("NFC", str(target).strip())
        if column not in names and column != _DEFAULT_TARGET:
            choices = ", ".join(map(one_line, names[:20]))
            raise BadInput(f"label={target!r:.80}", "is no column", f"there are {choices}")
        self.target = column if column in names else None
        self._files = {part: folder / f"{part}.csv" for part in parts}
        with users_code("train"):
            train.to_csv(self._files["train"], index=False)
        try:
            draft = draft_schema(self._files["train"])
        except BadInput as error:
            raise BadInput("train", error.why or error.what, error.way_out) from error
        schema = draft.schema
        for line in draft.left_out:
            if self.target and line.startswith(f"{self.target}: "):
                raise BadInput(f"label={target!r:.80}", line.removeprefix(f"{self.target}: "))
        self.schema = folder / "schema.json"
        self.schema.write_text(schema_text(schema), encoding="utf-8")
        names = [*schema.names, *([schema.person] if schema.person else [])]
        remarks += [line for line in draft.warnings if " are read " in line or " taken as " in line]
        for part, frame in frames.items():
            with users_code(part):
                frame[names].to_csv(self._files[part], index=False)
        rows = " and ".join(f"{len(frame):,}" for frame in parts.values())
        self.about = f"{rows} rows of a table with {len(names)} columns"
        self.about += f", {self.target} to be predicted" if self.target else ""
        self.about += f"; left out: {'; '.join(draft.left_out)}" if draft.left_out else ""
        self.about += "".join(f"; {line}" for line in dict.fromkeys(remarks))

    @property
    def places(self) -> dict[str, Any]:
        """The settings that say where the rows are."""
        setting_by_part = {"train": "data_dir", "held_out": "held_out"}
        return {setting_by_part[part]: str(file) for part, file in self._files.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which a run trains on the rows."""
        target = {} if self.target is None else {"target": self.target}
        return {"dataset": "table", "schema": str(self.schema), **target, **self.places}


def _clean_frame(part: str, frame: Any, remarks: list[str]) -> Any:
    """Copies a frame with names that are texts, and values that a file can hold.

    Args:
        part: `train` or `held_out`, for refusals.
        remarks: a list to which this function adds what the user should know, a line each.
    """
    if not is_frame(frame):
        raise BadInput(part, _MUST_BE_LIKE_TRAIN)
    if getattr(frame.columns, "nlevels", 1) > 1:
        way_out = "give each column one name, such as '_'.join(name)"
        raise BadInput(part, "its columns have names of several levels", way_out)
    names = [_clean_name(part, name) for name in frame.columns]
    if not names:
        raise BadInput(part, "has no column")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(
            f"{part}, column {one_line(repeated[0])}", "a name occurs twice", "rename one"
        )
    if index := [str(name) for name in getattr(frame.index, "names", ()) if name is not None]:
        names_shown = ", ".join(map(one_line, index))
        remarks.append(f"the index {names_shown} is no column; reset_index makes it")
    cleaned = frame.set_axis(names, axis=1)
    for name in names:
        column = f"{part}, column {one_line(name)}"
        with users_code(column):
            cleaned[name] = _clean_values(column, cleaned[name], remarks)
    return cleaned


def _clean_name(part: str, label: object) -> str:
    """Converts a column's name, which may be a number or have spaces around it, to a text."""
    name = str(label).strip() if isinstance(label, str | numbers.Number | date) else ""
    name = normalize("NFC", name)  # as mdgan reads names from files
    if not name or not name.isprintable() or label != label:
        raise BadInput(part, f"a column is called {label!r:.40}", "give it a name")
    return name


def _clean_values(where: str, column: Any, remarks: list[str]) -> Any:
    """Returns a column with values that a file can hold, or refuses it."""
    dtype = getattr(column.dtype, "subtype", column.dtype)
    if (kind := getattr(dtype, "kind", "O")) in _REFUSED_DTYPES:
        raise BadInput(where, *_REFUSED_DTYPES[kind])
    if kind == "f" and np.isinf(column.to_numpy(dtype=float, na_value=np.nan)).any():
        raise BadInput(where, "holds infinite numbers", "make them missing, with .replace")
    if (zone := getattr(dtype, "tz", None)) is not None:
        remarks.append(f"{column.name} has the times of {zone}, without the zone")
        return column.dt.tz_localize(None)
    if not hasattr(dtype, "categories") and not (isinstance(dtype, np.dtype) and kind == "O"):
        return column
    kinds = {_kind_of(where, value_type) for value_type in set(map(type, column.dropna()))}
    if len(kinds) > 1:
        way_out = "make it one kind, such as .astype(str)"
        raise BadInput(where, f"mixes {' and '.join(sorted(kinds))}", way_out)
    return column


def _kind_of(where: str, value_type: type) -> str:
    """Names the kind of a value by its class, such as numbers; refuses what is no single value."""
    is_collection = hasattr(value_type, "__len__") and not issubclass(value_type, str)
    if is_collection or issubclass(value_type, _REFUSED_TYPES):
        why = f"holds values of type {value_type.__name__}"
        raise BadInput(where, why, "give a number or text a cell")
    for kind, types in _TYPES_BY_KIND.items():
        if issubclass(value_type, types):
            return kind
    return value_type.__name__
