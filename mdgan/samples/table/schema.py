"""The data dictionary of a consortium: which columns its tables have, and what may stand in them.

All sites agree on it before anybody trains, and all know it. It is one JSON file.
"""

from typing import Literal

import msgspec

MOST_COMMON = 20
"""Common values of a column at most."""


class Column(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every column has."""

    name: str
    may_be_missing: bool = False


class _Scaled(Column, frozen=True, kw_only=True):
    """A column of numbers, within bounds.

    Attributes:
        common: values that many rows share exactly, such as 0, in rising order.
        spacing: how cells of the histogram that all sites add up are spaced: equally wide, or for
            long tails equally wide in log(1 + 10⁴ (x − low) / (high − low)).
    """

    common: tuple[float, ...] = ()
    spacing: Literal["linear", "log"] = "linear"


class NumberColumn(_Scaled, frozen=True, kw_only=True, tag="number"):
    """Numbers with so many decimals, from `low` to `high`."""

    low: float
    high: float
    decimals: int = 6


class WholeColumn(_Scaled, frozen=True, kw_only=True, tag="whole"):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int


class DateColumn(_Scaled, frozen=True, kw_only=True, tag="date"):
    """Days from `low` to `high`, as 2024-12-31; common values are days since `low`."""

    low: str
    high: str


class TimeColumn(_Scaled, frozen=True, kw_only=True, tag="time"):
    """Dates with times of day, as 2024-12-31T23:59:59; common values are seconds since `low`."""

    low: str
    high: str


class YesNoColumn(Column, frozen=True, kw_only=True, tag="yes_no"):
    """One of two answers, no first in codes: `no` is 0, `yes` is 1."""

    no: str = "no"
    yes: str = "yes"


class CategoryColumn(Column, frozen=True, kw_only=True, tag="category"):
    """One of several categories, without an order."""

    categories: tuple[str, ...]


class OrderedColumn(Column, frozen=True, kw_only=True, tag="ordered"):
    """One of several categories, from the lowest to the highest."""

    categories: tuple[str, ...]


AnyColumn = (
    NumberColumn
    | WholeColumn
    | DateColumn
    | TimeColumn
    | YesNoColumn
    | CategoryColumn
    | OrderedColumn
)


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table, in order."""

    columns: tuple[AnyColumn, ...]
    about: str = ""
