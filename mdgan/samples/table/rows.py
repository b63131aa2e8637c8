"""Rows of a table as numbers, and as the files that are written of them."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.samples.table.schema import (
    AnyColumn,
    ScaledColumn,
    Schema,
)
from mdgan.storage.csv_file import csv_bytes

PARQUET_NEEDS = "Parquet files need pyarrow: pip install 'mdgan[tables]'"
FRAMES_NEED = "rows as a DataFrame need pandas: pip install 'mdgan[tables]'; raw=True gives tensors"
_PARQUET_TYPES = {"number": "float64", "whole": "int64", "date": "date32", "time": "timestamp[s]"}
_FRAME_TYPES = {"int64": "Int64", "date32": "datetime64[s]", "timestamp[s]": "datetime64[s]"}
"""Where they differ from those of Parquet."""


@dataclass(frozen=True)
class Rows:
    """n rows that fit a schema."""

    schema: Schema
    # float64 [n, columns of the schema]: numbers as they are, dates in days and times in seconds
    # since the column's `low`, categories as codes (yes / no: 1 / 0), and NaN where a value is
    # missing.
    values: NDArray[np.float64]
    # Whose row each is, texts [n]; None if the schema names no person.
    persons: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def of(self, places: NDArray[np.int64]) -> "Rows":
        """The rows at some places, int64 [k]."""
        persons = None if self.persons is None else self.persons[places]
        return Rows(self.schema, self.values[places], persons)

    def fits(self) -> NDArray[np.bool_]:
        """Which rows have nothing but what the schema allows, [n]."""
        found = np.ones(len(self), dtype=np.bool_)
        for column, values in zip(self.schema.columns, self.values.T, strict=True):
            missing = np.isnan(values)
            if isinstance(column, ScaledColumn):
                low, high = column.bounds
                known = np.array([column.rounded(value) for value in values[~missing].tolist()])
                is_value = (known == values[~missing]) & (low <= known) & (known <= high)
                is_value |= np.isin(values[~missing], column.exact)
            else:
                is_value = np.isin(values[~missing], range(len(column.choices)))
            found[~missing] &= is_value
            found[missing] &= column.may_be_missing
        return found


def csv_of(rows: Rows) -> bytes:
    """A CSV file with a header; missing values are empty."""
    columns = [
        texts_of(column, rows.values[:, place]) for place, column in enumerate(rows.schema.columns)
    ]
    return csv_bytes([rows.schema.names, *zip(*columns, strict=True)])


def texts_of(column: AnyColumn, values: NDArray[np.float64]) -> list[str]:
    """The texts of a column's values; empty where one is missing."""
    if isinstance(column, ScaledColumn):
        write: Callable[[float], str] = column.write
        return ["" if value != value else write(value) for value in values.tolist()]
    return ["" if value != value else column.choices[int(value)] for value in values.tolist()]


def _typed(rows: Rows) -> Iterator[tuple[str, str, list[Any]]]:
    """Of each column its name, its type, and its values by that; None where one is missing."""
    for column, values in zip(rows.schema.columns, rows.values.T, strict=True):
        if not isinstance(column, ScaledColumn) or getattr(column, "ends", False):  # ends are texts
            yield column.name, "string", [text or None for text in texts_of(column, values)]
            continue
        of = getattr(column, "moment", int if column.is_whole else float)
        found = [None if value != value else of(value) for value in values.tolist()]
        yield column.name, _PARQUET_TYPES[column.kind], found


def frame_of(rows: Rows) -> Any:
    """A pandas DataFrame with the columns' types."""
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
    """A Parquet file with the columns' types."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(PARQUET_NEEDS) from error
    table = {name: pa.array(values, kind) for name, kind, values in _typed(rows)}
    buffer = io.BytesIO()
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()
