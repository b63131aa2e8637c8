"""Conditions that rows of a table shall fulfil, such as `sex=F` or `age>=65`."""

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput, one_line
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema

_CONDITION = re.compile(r"(.*?)(<=|>=|=)(.*)", re.DOTALL)
_MISSING = ""
_COMPARES: dict[str, Callable[[NDArray[np.float64], float], NDArray[np.bool_]]] = {
    "=": np.equal,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}


class RowCondition:
    """One condition.

    Args:
        text: a column's name, one of = <= >=, and a value; empty for a missing one. <= and >= are
            for numbers, dates, times and ordered categories.

    Raises:
        BadInput: it is none, or the schema knows no such column or value.
    """

    def __init__(self, schema: Schema, text: str) -> None:
        shown = f"--where {one_line(text)}"
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise BadInput(f"{shown}: must be COLUMN=VALUE, COLUMN<=VALUE or COLUMN>=VALUE")
        name, self.compare, value = (part.strip() for part in found.groups())
        if name not in schema.names:
            raise BadInput(
                f"{shown}: there is no column {one_line(name)}; there are {', '.join(schema.names)}"
            )
        self.place = schema.place(name)
        column = schema.columns[self.place]
        try:
            self.value = _read(column, self.compare, value)
        except ValueError as error:
            raise BadInput(f"{shown}: {one_line(value)} {error}") from error

    def holds(self, rows: Rows) -> NDArray[np.bool_]:
        """For which rows it holds, [n]."""
        values = rows.values[:, self.place]
        return (
            np.isnan(values)
            if np.isnan(self.value)
            else _COMPARES[self.compare](values, self.value)
        )


def _read(column: AnyColumn, compare: str, text: str) -> float:
    if text == _MISSING:
        if compare != "=" or not column.may_be_missing:
            raise ValueError("is no value of this column")
        return float("nan")
    if isinstance(column, ScaledColumn):
        return column.read(text)
    if text not in column.choices:
        raise ValueError(f"is none of {', '.join(column.choices[:20])}")
    if compare != "=" and not column.is_ordered:
        raise ValueError(f"has no order; write {column.name}={text}")
    return float(column.choices.index(text))
