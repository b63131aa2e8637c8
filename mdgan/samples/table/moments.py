"""Dates and times as they stand in files: which text is which moment, by a grammar of its own.

Only ASCII digits count, and years have four. What two ways of reading fit is for its column to
decide: 1/2/2024 alone may be of January or of February.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from functools import lru_cache

from mdgan.samples.table.numbers import unwrapped

ISO = "YYYY-MM-DD"
FORMS = {  # by what their texts name
    "day": (
        *(ISO, "DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD", "YYYYMMDD", "DD/MM/YYYY", "MM/DD/YYYY"),
        *("DD-MM-YYYY", "MM-DD-YYYY", "YYYY-Www-D"),
    ),
    "month": ("YYYY-MM", "YYYY/MM", "YYYYMM", "MM/YYYY", "MM-YYYY", "MM.YYYY"),
    "week": ("YYYY-Www",),
}
UNITS = {form: unit for unit, forms in FORMS.items() for form in forms}
"""What a text of a form names: a day, a month or a week."""
CLOCKS = tuple(f"{h}:mm{s}{half}" for h in ("hh", "h") for s in (":ss", "") for half in ("", " AM"))
"""How times of day are written; before them stands a space, or T."""
TWO_WAYS = frozenset({"DD/MM/YYYY", "MM/DD/YYYY", "DD-MM-YYYY", "MM-DD-YYYY"})
_ORDERS = {"DD": "the day stands first", "MM": "the month stands first"}
_LOOKS_TWO_WAYS = re.compile(r"\d[/-]\d\d?[/-]\d{4}", re.ASCII)
_USUAL = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d)?", re.ASCII)
"""Of which `fromisoformat` makes only what is meant, and fast."""
_MOMENT = re.compile(
    r"([\d./-]+|\d{4}-W\d\d(?:-\d)?)"
    r"(?:(?:[Tt]| +)(\d\d|\d(?=:))(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?(?: ?([AaPp])\.?[Mm]\.?)?"
    r" ?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_COMPACT = re.compile(r"(\d{8})(\d{4}(?:\d\d)?)(?:\.0)?", re.ASCII)
_DIGITS = re.compile(r"(\d{4})(\d\d)(\d\d)?(?:\.0)?", re.ASCII)
_PARTS = re.compile(r"(\d{1,4})([-/.])(\d{1,4})(?:\2(\d{1,4}))?", re.ASCII)


def readings_of(text: str) -> Mapping[str, datetime]:
    """The moments that a text may mean, by form; the first ones if it means a month or a week.

    Those with a time zone have one. Empty if it means none.
    """
    if _USUAL.fullmatch(text):
        try:
            return {ISO: datetime.fromisoformat(text)}
        except ValueError:
            return {}
    found = _MOMENT.fullmatch(_COMPACT.sub(r"\1T\2", text, 1))
    if found is None:
        return {}
    day, hour, minute, second, fraction, half, zone = found.groups()
    days = _days_of(day)
    if hour is None or not days:
        return days
    if half:
        if not 1 <= int(hour) <= 12:
            return {}
        hour = int(hour) % 12 + 12 * (half in "Pp")
    try:
        micro = int((fraction or "")[:6].ljust(6, "0"))
        clock = time(int(hour), int(minute or 0), int(second or 0), micro, UTC if zone else None)
    except ValueError:  # such as 25:00
        return {}
    return {form: datetime.combine(days[form], clock) for form in days if UNITS[form] == "day"}


@lru_cache(1 << 16)
def _days_of(text: str) -> Mapping[str, datetime]:
    """The days that a text may mean, or the first of its month or week, by form."""
    days = {}
    for form, (year, month, day) in _parts_of(text):
        with suppress(ValueError):  # such as February 30
            days[form] = datetime(int(year), int(month), int(day))
    if "W" in text:
        year, week, *weekday = text.split("-")
        with suppress(ValueError):
            found = date.fromisocalendar(int(year), int(week[1:]), int(*weekday or "1"))
            form = "YYYY-Www-D" if weekday else "YYYY-Www"
            days[form] = datetime.combine(found, time())
    return days


def _parts_of(text: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Forms with the year, the month and the day, which there need not be."""
    if found := _DIGITS.fullmatch(text):
        year, month, day = found.groups()
        yield "YYYYMMDD" if day else "YYYYMM", (year, month, day or "1")
    if (found := _PARTS.fullmatch(text)) is None:
        return
    one, sign, two, three = found.groups()
    sizes = len(one), len(two), len(three or "")
    if sizes == (4, 2, 0) and sign != ".":
        yield f"YYYY{sign}MM", (one, two, "1")
    elif sizes in ((1, 4, 0), (2, 4, 0)):
        yield f"MM{sign}YYYY", (two, one, "1")
    elif sizes[0] == 4 and three and max(sizes[1:]) < 3:
        yield f"YYYY{sign}MM{sign}DD", (one, two, three)
    elif sizes[2] == 4 and max(sizes[:2]) < 3:
        yield f"DD{sign}MM{sign}YYYY", (three, two, one)
        if sign != ".":
            yield f"MM{sign}DD{sign}YYYY", (three, one, two)


def moment_of(text: str, form: str = ISO) -> datetime:
    """The moment of a text in a column of a form; other forms are read where there is no doubt.

    Raises:
        ValueError: it is none of the form's unit, has a time zone, or may be of two days. The text
            says what is wrong beside that; it may be empty.
    """
    found = readings_of(text)
    if form in found:
        moment = found[form]
    else:
        unit = UNITS[form]
        if form in TWO_WAYS and not found.keys().isdisjoint(TWO_WAYS):
            found = {each: m for each, m in found.items() if each[:2] == form[:2]}
            if not found:
                raise ValueError(f"; in this column {_ORDERS[form[:2]]}")
        # Programs that know only days write a month as its first.
        of_unit = [
            moment
            for each, moment in found.items()
            if UNITS[each] == unit or (UNITS[each] == "day" and _begins(moment, unit))
        ]
        if len(of_unit) > 1:
            raise ValueError(
                "; day and month may be taken for each other, write 2024-12-31, or agree on "
                f'"form": "{min(found)}" or "{max(found)}" in the schema'
            )
        if not of_unit:
            raise ValueError(f"; the schema has {unit}s" if found else "")
        (moment,) = of_unit
    if moment.tzinfo is not None:
        raise ValueError("; it has a time zone")
    return moment


def _begins(moment: datetime, unit: str) -> bool:
    return (moment.day == 1) if unit == "month" else (unit == "week" and moment.weekday() == 0)


class FormSurvey:
    """In which form the texts of a column of a file stand, as far as all of them tell."""

    def __init__(self) -> None:
        self._seen = ""
        self._fitting, self._number = Counter[str](), 0
        self._examples: dict[str, str] = {}

    def add(self, texts: Sequence[str]) -> None:
        """Takes in different texts."""
        texts = [unwrapped(text.strip()) for text in texts]
        self._seen = self._seen or form_seen(texts)
        for text in texts if has_two_ways(texts) else ():
            found = readings_of(text).keys() & TWO_WAYS
            self._number += bool(found)
            self._fitting.update(each[:2] for each in found)
            if len(found) == 1:
                self._examples.setdefault(min(found), text)

    def form(self, of_schema: str) -> tuple[str, str]:
        """The form, and which text decides that, if some have two ways; empty if nothing tells.

        Args:
            of_schema: the schema's form, which holds where all texts fit it.
        """
        fits = {order for order in _ORDERS if self._fitting[order] == self._number}
        if not self._number:
            return self._seen, ""
        if not self._examples or (of_schema in TWO_WAYS and (of_schema[:2] in fits or not fits)):
            return of_schema, ""
        order = max(_ORDERS, key=self._fitting.__getitem__)
        decided = next(each for each in self._examples if each[:2] == order)
        return decided, self._examples[decided]


def has_two_ways(texts: Iterable[str]) -> bool:
    """Whether some text may have the day or the month first, as far as its look tells."""
    return _LOOKS_TWO_WAYS.search("\n".join(texts)) is not None


def form_seen(texts: Iterable[str]) -> str:
    """The form of the first text that has one and no other; empty if there is none."""
    return next((min(r) for r in map(readings_of, map(str.strip, texts)) if len(r) == 1), "")


# Moments as numbers, and as texts again.


def count_of(day: date, unit: str) -> int:
    """How many days, months or weeks have passed since the year 0 or 1."""
    if unit == "month":
        return 12 * day.year + day.month - 1
    return day.toordinal() if unit == "day" else (day.toordinal() - 1) // 7


def day_at(count: int, unit: str) -> date:
    """The day, or the first of the month or week, of a count."""
    if unit == "month":
        return date(count // 12, count % 12 + 1, 1)
    return date.fromordinal(count if unit == "day" else 7 * count + 1)


def form_of_days(form: str) -> str:
    """By which of `UNITS` texts are read, such as DD.MM.YYYY for D.M.YYYY hh:mm; else the form."""
    day = re.split("[Th ]", form)[0]
    full, clock = re.sub(r"\b([DM])\b", r"\1\1", day) if "W" not in day else day, form[len(day) :]
    return full if not clock or (UNITS.get(full) == "day" and clock[1:] in CLOCKS) else form


def written(day: date, form: str) -> str:
    """A date or a moment in its form; of a month or week any day."""
    form, clock = (found := re.split("(?=[Th ])", form, maxsplit=1))[0], "".join(found[1:])
    hour = f"{day:%I}" if "AM" in clock else f"{day:%H}"
    parts = {"AM": f"{day:%p}", "hh": hour, "h": hour.lstrip("0") or "0", "mm": f"{day:%M}"}
    for sign, text in {**parts, "ss": f"{day:%S}"}.items():
        clock = clock.replace(sign, text)
    year, month = f"{day.year:04}", f"{day.month:02}"
    if "Www" in form:
        of_week, week, weekday = day.isocalendar()
        text = form.replace("YYYY", f"{of_week:04}").replace("ww", f"{week:02}")
        return text.replace("D", f"{weekday}")
    text = form.replace("YYYY", year).replace("MM", month).replace("DD", f"{day.day:02}")
    return text.replace("M", f"{day.month}").replace("D", f"{day.day}") + clock
