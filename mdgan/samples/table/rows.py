"""Rows of a table as numbers, and how mdgan writes them as CSV, Parquet and DataFrames."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema
from mdgan.storage.csv_file import csv_bytes

PARQUET_NEEDS = "Parquet files need pyarrow: pip install 'mdgan[tables]'"
FRAMES_NEED = "rows as a DataFrame need pandas: pip install 'mdgan[tables]'; raw=True gives tensors"
_LIKE_THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(\.\d{3})+")
_PARQUET_TYPES = {"number": "float64", "whole": "int64", "date": "date32", "time": "timestamp[s]"}
_FRAME_TYPES = {"int64": "Int64", "date32": "datetime64[s]", "timestamp[s]": "datetime64[s]"}
"""The types of a DataFrame where they differ from those of Parquet."""


@dataclass(frozen=True)
class Rows:
    """n rows that fit a schema."""

    schema: Schema
    # float64 [n, columns of the schema]: numbers as they are, dates in days and times in seconds
    # since the column's `low`, categories as codes (yes / no: 1 / 0), and NaN where a value is
    # missing.
    values: NDArray[np.float64]
    # The person of each row, texts [n]; None if the schema names no person.
    persons: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def select(self, places: NDArray[np.int64]) -> "Rows":
        """Selects rows by their indices, int64 [k]."""
        persons = None if self.persons is None else self.persons[places]
        return Rows(self.schema, self.values[places], persons)

    def are_valid(self) -> NDArray[np.bool_]:
        """Which rows have only values that the schema allows, bool [n]."""
        is_valid = np.ones(len(self), dtype=np.bool_)
        for column, values in zip(self.schema.columns, self.values.T, strict=True):
            missing = np.isnan(values)
            if isinstance(column, ScaledColumn):
                low, high = column.bounds
                known = np.array([column.rounded(value) for value in values[~missing].tolist()])
                is_value = (known == values[~missing]) & (low <= known) & (known <= high)
                is_value |= np.isin(values[~missing], column.exact_values)
            else:
                is_value = np.isin(values[~missing], range(len(column.choices)))
            is_valid[~missing] &= is_value
            is_valid[missing] &= column.may_be_missing
        return is_valid


def csv_of(rows: Rows) -> bytes:
    """Writes a CSV file with a header; missing values are empty."""
    columns = [
        texts_of(column, rows.values[:, place]) for place, column in enumerate(rows.schema.columns)
    ]
    return csv_bytes([rows.schema.names, *zip(*columns, strict=True)])


def texts_of(column: AnyColumn, values: NDArray[np.float64]) -> list[str]:
    """Writes each value of a column as a text, empty for a missing one."""
    if isinstance(column, ScaledColumn):
        write: Callable[[float], str] = column.write
        texts = ["" if value != value else write(value) for value in values.tolist()]
        if any(map(_LIKE_THOUSANDS.fullmatch, texts)):  # beside 1, 1.625 could be 1,625
            texts = [f"{text}.0" if text.lstrip("-").isdecimal() else text for text in texts]
        return texts
    return ["" if value != value else column.choices[int(value)] for value in values.tolist()]


def _typed(rows: Rows) -> Iterator[tuple[str, str, list[Any]]]:
    """Yields each column's name, Parquet type and values of that type, None for a missing one."""
    for column, values in zip(rows.schema.columns, rows.values.T, strict=True):
        if not isinstance(column, ScaledColumn) or getattr(column, "ends", False):  # ends are texts
            yield column.name, "string", [text or None for text in texts_of(column, values)]
            continue
        convert = getattr(column, "moment_at", int if column.is_whole else float)
        converted = [None if value != value else convert(value) for value in values.tolist()]
        yield column.name, _PARQUET_TYPES[column.kind], converted


def frame_of(rows: Rows) -> Any:
    """Makes a pandas DataFrame with the columns' types; BadInput if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise BadInput(FRAMES_NEED) from error
    table = {}
    for name, kind, values in _typed(rows):
        is_full = kind == "int64" and None not in values
        table[name] = pd.Series(values, dtype=kind if is_full else _FRAME_TYPES.get(kind))
    return pd.DataFrame(table)


def parquet_of(rows: Rows) -> bytes:
    """Writes a Parquet file with the columns' types; BadInput if pyarrow is not installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(PARQUET_NEEDS) from error
    table = {name: pa.array(values, kind) for name, kind, values in _typed(rows)}
    buffer = io.BytesIO()
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()
