"""The columns of numbers and moments that a schema may have: their fields, reading and writing."""

from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import ClassVar, Literal

import msgspec
from typing_extensions import override

from mdgan.samples.table import moments
from mdgan.samples.table.numbers import parse_end, parse_number, parse_numeral


class Column(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What a schema says of a column of any kind."""

    is_ordered: ClassVar[bool] = True  # whether one value is less than another

    name: str
    may_be_missing: bool = False
    # Texts that stand for a missing value beside the usual ones, such as -999.
    missing: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def kind(self) -> str:
        """The kind of the column as schemas write it: `number`, `category`, …."""
        return str(self.__struct_config__.tag)


class ScaledColumn(Column, frozen=True, kw_only=True):
    """A column whose values are numbers between two bounds.

    Each subclass has `bounds`, the least and largest value, and `read`, which turns a text into its
    value. The ValueError that `read` raises continues a sentence: "is no number".
    """

    is_whole: ClassVar[bool] = True  # whether all values are whole numbers

    # Values that many rows share exactly, such as 0, in rising order.
    common: tuple[float, ...] = ()
    # The sites add up their histograms of the column. Its cells are equally wide, or for long tails
    # equally wide in log(1 + 10⁴ (x − low) / (high − low)).
    spacing: Literal["linear", "log"] = "linear"

    @property
    def exact_values(self) -> tuple[float, ...]:
        """The values that have an option each: common ones and ends of the scale, rising."""
        return self.common

    def write(self, value: float) -> str:
        """Writes a value as files of the column have it."""
        return str(int(value))

    def rounded(self, value: float) -> float:
        """The nearest number with the column's decimals; it may lie outside the bounds."""
        return float(round(value))


class NumericColumn(ScaledColumn, frozen=True, kw_only=True):
    """Numbers, with the unit, decimal sign and ends of the scale that files write.

    A file may write `>89` for every number above 89: that is an *end* of the scale. Its value is
    the next number after 89 that the column could have.
    """

    low: float
    high: float
    unit: str | msgspec.UnsetType = msgspec.UNSET  # such as mg or %
    # The sign before decimals, for files in which it could also stand between thousands.
    decimal: Literal[".", ","] | msgspec.UnsetType = msgspec.UNSET
    # The ends of the scale: 89 for `>89`, or the whole text, such as >=90.
    below: float | str | msgspec.UnsetType = msgspec.UNSET
    above: float | str | msgspec.UnsetType = msgspec.UNSET

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value."""
        return float(self.low), float(self.high)

    @property
    def ends(self) -> dict[float, str]:
        """The text of each end of the scale, by its value; ValueError if one cannot be read."""
        text_by_value: dict[float, str] = {}
        if self.below is self.above is msgspec.UNSET:
            return text_by_value
        step = 10.0 ** -getattr(self, "decimals", 0)
        for sign, end in (("<", self.below), (">", self.above)):
            if end is msgspec.UNSET:
                continue
            text = end if isinstance(end, str) else f"{sign}{end:.12g}"
            least, bound = parse_end(text, is_whole=self.is_whole)
            if least[:1] != sign:
                raise ValueError(f"end {text!r:.40} must begin with {sign}")
            text_by_value[self.rounded(bound + step if sign == ">" else bound - step)] = text
        return text_by_value

    @property
    @override
    def exact_values(self) -> tuple[float, ...]:
        return tuple(sorted([*self.common, *self.ends]))

    def read(self, text: str) -> float:
        """Reads a number or an end; the ValueError says in words what is wrong with the text."""
        if (text[:1] in ("<", ">", "≤", "≥") or text[-1:] == "+") and parse_numeral(text):
            sign, bound = parse_end(text, is_whole=self.is_whole)
            for value, end in self.ends.items():
                if parse_end(end, is_whole=self.is_whole) == (sign, bound):
                    return value
            side = "below" if sign[0] == "<" else "above"
            setting = f"{bound:.12g}" if len(sign) == 1 else f'"{text}"'
            raise ValueError(
                f'is no number; agree on "{side}": {setting}, if it is the end of a scale'
            )
        return within(self._number(text), self.bounds)

    def _number(self, text: str) -> float:
        """Reads a text that is no end, and rounds it to the column's decimals."""
        raise NotImplementedError


class NumberColumn(NumericColumn, frozen=True, kw_only=True, tag="number"):
    """Numbers from `low` to `high`, with at most `decimals` digits behind the point."""

    is_whole: ClassVar[bool] = False

    decimals: int = 6

    def _number(self, text: str) -> float:
        return round(parse_number(text.replace(self.decimal or ".", ".")), self.decimals)

    def write(self, value: float) -> str:
        """Writes a value without zeros at its end, or the text of an end of the scale."""
        if value in self.ends:
            return self.ends[value]
        text = f"{value:.{self.decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text.replace(".", self.decimal or ".")

    def rounded(self, value: float) -> float:
        return round(value, self.decimals)


class WholeColumn(NumericColumn, frozen=True, kw_only=True, tag="whole"):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    def _number(self, text: str) -> float:
        with suppress(ValueError):
            if (value := parse_number(text)).is_integer():
                return value
        raise ValueError("is no whole number")

    def write(self, value: float) -> str:
        return self.ends.get(value) or str(int(value))


_SECOND = timedelta(seconds=1)


class MomentColumn(ScaledColumn, frozen=True, kw_only=True, dict=True):
    """Dates or moments. A value counts the days, months, weeks or seconds since `low`."""

    _example: ClassVar[str]  # what a text has to be, for messages

    low: str
    high: str
    # How files write dates, such as DD.MM.YYYY or D/M/YYYY hh:mm; unset for 2024-12-31.
    form: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value."""
        raise NotImplementedError

    @cached_property
    def day_form(self) -> str:
        """The key of `moments.UNITS` by which dates are read: the form without a time of day."""
        return moments.form_of_days(self.form or moments.ISO)

    def units_since_low(self, moment: datetime) -> int:
        """The number of whole units from `low` to a moment; ValueError if it does not fit."""
        raise NotImplementedError

    def moment_at(self, value: float) -> date:
        """The day or moment that is `value` units after `low`."""
        raise NotImplementedError

    def read(self, text: str) -> float:
        """Reads a date; the ValueError says in words what is wrong with the text."""
        return within(self._value_of(text), self.bounds, (self.low, self.high))

    def is_missing_code(self, text: str) -> bool:
        """Whether a date stands for a missing value, such as 9999-12-31 or 31.12.9999."""
        return bool(self.missing) and self._value_of(text) in self._missing_values

    def _value_of(self, text: str) -> float:
        try:
            return float(self.units_since_low(moments.moment_of(text, self.day_form)))
        except ValueError as error:
            raise ValueError(f"is no {self._example}{error}") from None

    @cached_property
    def _missing_values(self) -> set[float]:
        values = set[float]()
        for code in self.missing or ():
            with suppress(ValueError):
                values.add(self._value_of(code))
        return values


class DateColumn(MomentColumn, frozen=True, kw_only=True, tag="date"):
    """Days such as 2024-12-31; months or weeks if `form` names no day."""

    _example = "date such as 2024-12-31"

    @cached_property
    @override
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(moments.count_of(date.fromisoformat(self.high), self._unit) - self._low)

    def units_since_low(self, moment: datetime) -> int:
        if moment.hour or moment.minute or moment.second or moment.microsecond:
            raise ValueError("; it has a time of day")
        return moments.count_of(moment, self._unit) - self._low

    def moment_at(self, value: float) -> date:
        return moments.day_at(self._low + int(value), self._unit)

    @cached_property
    def _unit(self) -> str:
        return moments.UNITS[self.day_form]

    @cached_property
    def _low(self) -> int:
        return moments.count_of(date.fromisoformat(self.low), self._unit)

    def write(self, value: float) -> str:
        return moments.written(self.moment_at(value), self.form or moments.ISO)


class TimeColumn(MomentColumn, frozen=True, kw_only=True, tag="time"):
    """Dates with times of day, such as 2024-12-31T23:59:59; values are in seconds."""

    _example = "moment such as 2024-12-31T23:59:59"

    @cached_property
    @override
    def bounds(self) -> tuple[float, float]:
        return 0.0, (datetime.fromisoformat(self.high) - self._low) / _SECOND

    @cached_property
    def _low(self) -> datetime:
        return datetime.fromisoformat(self.low)

    def units_since_low(self, moment: datetime) -> int:
        return (moment - self._low) // _SECOND

    def moment_at(self, value: float) -> datetime:
        return self._low + int(value) * _SECOND

    def write(self, value: float) -> str:
        form = self.form or f"{moments.ISO}Thh:mm:ss"
        if "h" not in form:
            form += "hhmmss" if form.isalpha() else " hh:mm:ss"
        return moments.written(self.moment_at(value), form)


def within(
    value: float, bounds: tuple[float, float], bound_texts: tuple[str, str] | None = None
) -> float:
    """Returns a value within bounds; else ValueError, which shows them as `bound_texts`."""
    low, high = bounds
    if not low <= value <= high:  # NaN, too
        least, most = bound_texts or (f"{low:.12g}", f"{high:.12g}")
        raise ValueError(f"is outside the schema's bounds, {least} to {most}")
    return value
