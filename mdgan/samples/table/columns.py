"""What every column of a schema has, and the columns of numbers and moments."""

from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import ClassVar, Literal

import msgspec
from typing_extensions import override

from mdgan.samples.table import moments
from mdgan.samples.table.numbers import end_of, number_of, parsed


class Column(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every column has; `is_ordered` if one value is less than another."""

    is_ordered: ClassVar[bool] = True

    name: str
    may_be_missing: bool = False
    # Texts that stand for a missing value beside the usual ones, such as -999.
    missing: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def kind(self) -> str:
        """As a schema names it: `number`, `category`, …."""
        return str(self.__struct_config__.tag)


class ScaledColumn(Column, frozen=True, kw_only=True):
    """A column of numbers, within bounds.

    Each kind has `bounds`, its least and largest value, and `read`, which gives the value of a text
    or raises ValueError in words.
    """

    is_whole: ClassVar[bool] = True  # whether all values are whole numbers

    # Values that many rows share exactly, such as 0, in rising order.
    common: tuple[float, ...] = ()
    # How cells of the histogram that all sites add up are spaced: equally wide, or for long tails
    # equally wide in log(1 + 10⁴ (x − low) / (high − low)).
    spacing: Literal["linear", "log"] = "linear"

    @property
    def exact(self) -> tuple[float, ...]:
        """The common values, and those that stand for ends, in rising order."""
        return self.common

    def write(self, value: float) -> str:
        """The text of a value."""
        return str(int(value))

    def rounded(self, value: float) -> float:
        """The nearest value that the column may have, before bounds."""
        return float(round(value))


class NumericColumn(ScaledColumn, frozen=True, kw_only=True):
    """Numbers, and what files write with them.

    A file may say `>89` of all numbers above 89: that is an *end*. Its value is the next beyond.
    """

    low: float
    high: float
    unit: str | msgspec.UnsetType = msgspec.UNSET  # such as mg or %
    # What stands before decimals in files, where that may be taken for thousands.
    decimal: Literal[".", ","] | msgspec.UnsetType = msgspec.UNSET
    # The ends: a number as in `>89`, or the whole text, such as >=90.
    below: float | str | msgspec.UnsetType = msgspec.UNSET
    above: float | str | msgspec.UnsetType = msgspec.UNSET

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value."""
        return float(self.low), float(self.high)

    @property
    def ends(self) -> dict[float, str]:
        """The text of each end, by its value; ValueError if one is none."""
        found: dict[float, str] = {}
        if self.below is self.above is msgspec.UNSET:
            return found
        step = 10.0 ** -getattr(self, "decimals", 0)
        for sign, end in (("<", self.below), (">", self.above)):
            if end is msgspec.UNSET:
                continue
            text = end if isinstance(end, str) else f"{sign}{end:.12g}"
            least, bound = end_of(text, is_whole=self.is_whole)
            if least[:1] != sign:
                raise ValueError(f"end {text!r:.40} must begin with {sign}")
            found[self.rounded(bound + step if sign == ">" else bound - step)] = text
        return found

    @property
    @override
    def exact(self) -> tuple[float, ...]:
        return tuple(sorted([*self.common, *self.ends]))

    def read(self, text: str) -> float:
        """The value of a text; raises ValueError in words."""
        if (text[:1] in ("<", ">", "≤", "≥") or text[-1:] == "+") and parsed(text):
            meant = end_of(text, is_whole=self.is_whole)
            for value, end in self.ends.items():
                if end_of(end, is_whole=self.is_whole) == meant:
                    return value
            side = "below" if meant[0][0] == "<" else "above"
            said = f"{meant[1]:.12g}" if len(meant[0]) == 1 else f'"{text}"'
            raise ValueError(
                f'is no number; agree on "{side}": {said}, if it is the end of a scale'
            )
        return within(self._number(text), self.bounds)

    def _number(self, text: str) -> float:
        """The number of a text, rounded as the column has it."""
        raise NotImplementedError


class NumberColumn(NumericColumn, frozen=True, kw_only=True, tag="number"):
    """Numbers with so many decimals, from `low` to `high`."""

    is_whole: ClassVar[bool] = False

    decimals: int = 6

    def _number(self, text: str) -> float:
        return round(number_of(text.replace(self.decimal or ".", ".")), self.decimals)

    def write(self, value: float) -> str:
        """With as many decimals as it needs, at most those of the column."""
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
            if (value := number_of(text)).is_integer():
                return value
        raise ValueError("is no whole number")

    def write(self, value: float) -> str:
        return self.ends.get(value) or str(int(value))


_SECOND = timedelta(seconds=1)


class MomentColumn(ScaledColumn, frozen=True, kw_only=True, dict=True):
    """Moments from `low` to `high`; values count days, months, weeks or seconds since `low`."""

    _like: ClassVar[str]

    low: str
    high: str
    # How files write them, such as DD.MM.YYYY or D/M/YYYY hh:mm; unset for 2024-12-31.
    form: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value."""
        raise NotImplementedError

    @cached_property
    def written_as(self) -> str:
        """The form of the column's days, as texts are read by it."""
        return moments.form_of_days(self.form or moments.ISO)

    def passed(self, moment: datetime) -> int:
        """How many units there are from `low` to it; ValueError if it cannot be in the column."""
        raise NotImplementedError

    def moment(self, value: float) -> date:
        """The moment, or the day, of a value."""
        raise NotImplementedError

    def read(self, text: str) -> float:
        """The value of a text; raises ValueError in words."""
        return within(self._passed(text), self.bounds, (self.low, self.high))

    def is_code(self, text: str) -> bool:
        """Whether a text stands for a missing value, however the file writes that moment."""
        return bool(self.missing) and self._passed(text) in self._codes

    def _passed(self, text: str) -> float:
        try:
            return float(self.passed(moments.moment_of(text, self.written_as)))
        except ValueError as error:
            raise ValueError(f"is no {self._like}{error}") from None

    @cached_property
    def _codes(self) -> set[float]:
        found = set[float]()
        for code in self.missing or ():
            with suppress(ValueError):
                found.add(self._passed(code))
        return found


class DateColumn(MomentColumn, frozen=True, kw_only=True, tag="date"):
    """Days, as 2024-12-31; or months or weeks, if its form has no days."""

    _like = "date such as 2024-12-31"

    @cached_property
    @override
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(moments.count_of(date.fromisoformat(self.high), self._unit) - self._low)

    def passed(self, moment: datetime) -> int:
        if moment.hour or moment.minute or moment.second or moment.microsecond:
            raise ValueError("; it has a time of day")
        return moments.count_of(moment, self._unit) - self._low

    def moment(self, value: float) -> date:
        return moments.day_at(self._low + int(value), self._unit)

    @cached_property
    def _unit(self) -> str:
        return moments.UNITS[self.written_as]

    @cached_property
    def _low(self) -> int:
        return moments.count_of(date.fromisoformat(self.low), self._unit)

    def write(self, value: float) -> str:
        return moments.written(self.moment(value), self.form or moments.ISO)


class TimeColumn(MomentColumn, frozen=True, kw_only=True, tag="time"):
    """Dates with times of day, as 2024-12-31T23:59:59; values are in seconds."""

    _like = "moment such as 2024-12-31T23:59:59"

    @cached_property
    @override
    def bounds(self) -> tuple[float, float]:
        return 0.0, (datetime.fromisoformat(self.high) - self._low) / _SECOND

    @cached_property
    def _low(self) -> datetime:
        return datetime.fromisoformat(self.low)

    def passed(self, moment: datetime) -> int:
        return (moment - self._low) // _SECOND

    def moment(self, value: float) -> datetime:
        return self._low + int(value) * _SECOND

    def write(self, value: float) -> str:
        form = self.form or f"{moments.ISO}Thh:mm:ss"
        if "h" not in form:
            form += "hhmmss" if form.isalpha() else " hh:mm:ss"
        return moments.written(self.moment(value), form)


def within(
    value: float, bounds: tuple[float, float], shown: tuple[str, str] | None = None
) -> float:
    """A value between bounds, which a message shows as `shown`; ValueError beyond them."""
    low, high = bounds
    if not low <= value <= high:  # NaN, too
        least, most = shown or (f"{low:.12g}", f"{high:.12g}")
        raise ValueError(f"is outside the schema's bounds, {least} to {most}")
    return value
