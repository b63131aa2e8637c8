"""Rows of a table as numbers, and as the files that are written of them."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.samples.table.schema import (
    AnyColumn,
    MomentColumn,
    NumberColumn,
    NumericColumn,
    ScaledColumn,
    Schema,
)
from mdgan.storage.csv_file import csv_bytes

PARQUET_NEEDS = "Parquet files need pyarrow: pip install 'mdgan[tables]'"
_PARQUET_TYPES = {"whole": "int64", "date": "date32", "time": "timestamp[s]"}
"""By kind of column; those of numbers are written as they are, and all others as texts."""


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


def parquet_of(rows: Rows) -> bytes:
    """A Parquet file with the columns' types."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(PARQUET_NEEDS) from error
    table = {}
    for place, column in enumerate(rows.schema.columns):
        values = rows.values[:, place]
        has_ends = isinstance(column, NumericColumn) and bool(column.ends)
        if isinstance(column, NumberColumn) and not has_ends:
            table[column.name] = pa.array(values, mask=np.isnan(values))
        else:
            written = texts_of(column, values)
            if isinstance(column, MomentColumn):  # whatever their form in texts
                written = ["" if v != v else column.moment(v).isoformat() for v in values.tolist()]
            texts = pa.array([text or None for text in written], pa.string())
            table[column.name] = texts.cast(
                "string" if has_ends else _PARQUET_TYPES.get(column.kind, "string")
            )
    buffer = io.BytesIO()
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()
