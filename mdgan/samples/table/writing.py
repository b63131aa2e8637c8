"""Files of rows."""

import io
from collections.abc import Callable

import numpy as np

from mdgan.errors import BadInput
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import AnyColumn, NumberColumn, ScaledColumn
from mdgan.storage.csv_file import csv_bytes

PARQUET_NEEDS = "Parquet files need pyarrow: pip install 'mdgan[tables]'"
_PARQUET_TYPES = {"whole": "int64", "date": "date32", "time": "timestamp[s]"}
"""By kind of column; those of numbers are written as they are, and all others as texts."""


def csv_of(rows: Rows) -> bytes:
    """A CSV file with a header; missing values are empty."""
    columns = [
        texts_of(column, rows.values[:, place]) for place, column in enumerate(rows.schema.columns)
    ]
    return csv_bytes([rows.schema.names, *zip(*columns, strict=True)])


def texts_of(column: AnyColumn, values: "np.typing.NDArray[np.float64]") -> list[str]:
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
        if isinstance(column, NumberColumn):
            table[column.name] = pa.array(values, mask=np.isnan(values))
        else:
            texts = pa.array([text or None for text in texts_of(column, values)], pa.string())
            table[column.name] = texts.cast(_PARQUET_TYPES.get(column.kind, "string"))
    buffer = io.BytesIO()
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()
