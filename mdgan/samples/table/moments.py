"""Dates and times in files: which moments a text may mean, and how a column writes a moment.

Digits are ASCII, and years have four. A text such as 1/2/2024 may mean a day of January or of
February: `FormSurvey` looks at all texts of its column to decide.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from functools import lru_cache

from mdgan.samples.table.numbers import without_formula

ISO = "YYYY-MM-DD"
FORMS = {  # by the unit that their texts name
    "day": (
        *(ISO, "DD.MM.YYYY", "YYYY/MM/DD", "YYYY.MM.DD", "YYYYMMDD", "DD/MM/YYYY", "MM/DD/YYYY"),
        *("DD-MM-YYYY", "MM-DD-YYYY", "YYYY-Www-D"),
    ),
    "month": ("YYYY-MM", "YYYY/MM", "YYYYMM", "MM/YYYY", "MM-YYYY", "MM.YYYY"),
    "week": ("YYYY-Www",),
}
UNITS = {form: unit for unit, forms in FORMS.items() for form in forms}
"""The unit that a text of each form names: a day, a month or a week."""
CLOCKS = tuple(f"{h}:mm{s}{half}" for h in ("hh", "h") for s in (":ss", "") for half in ("", " AM"))
"""Forms of times of day; a space or T stands before them."""
TWO_WAYS = frozenset({"DD/MM/YYYY", "MM/DD/YYYY", "DD-MM-YYYY", "MM-DD-YYYY"})
_ORDERS = {"DD": "the day stands first", "MM": "the month stands first"}
_LOOKS_TWO_WAYS = re.compile(r"\d[/-]\d\d?[/-]\d{4}", re.ASCII)
_USUAL = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d)?", re.ASCII)
"""Texts that `fromisoformat` reads correctly, and fast."""
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
    """Finds the moments that a text may mean, by form; empty if it is no date.

    A month or week stands for its first day. A moment has a time zone if the text names one.
    """
    if _USUAL.fullmatch(text):
        try:
            return {ISO: datetime.fromisoformat(text)}
        except ValueError:
            return {}
    match = _MOMENT.fullmatch(_COMPACT.sub(r"\1T\2", text, 1))
    if match is None:
        return {}
    day, hour, minute, second, fraction, half, zone = match.groups()
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
    """Finds the days that a text may mean, or the first day of its month or week, by form."""
    days = {}
    for form, (year, month, day) in _parts_of(text):
        with suppress(ValueError):  # such as February 30
            days[form] = datetime(int(year), int(month), int(day))
    if "W" in text:
        year, week, *weekday = text.split("-")
        with suppress(ValueError):
            first = date.fromisocalendar(int(year), int(week[1:]), int(*weekday or "1"))
            form = "YYYY-Www-D" if weekday else "YYYY-Www"
            days[form] = datetime.combine(first, time())
    return days


def _parts_of(text: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yields each form that a text fits, with its year, month and day; the day need not exist."""
    if match := _DIGITS.fullmatch(text):
        year, month, day = match.groups()
        yield "YYYYMMDD" if day else "YYYYMM", (year, month, day or "1")
    if (match := _PARTS.fullmatch(text)) is None:
        return
    one, sign, two, three = match.groups()
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
    """Reads a text of a column whose dates have a form, or another form that leaves no doubt.

    Raises:
        ValueError: the text names no moment of the form's unit, has a time zone, or may mean two
            days. The message continues "is no date", and may be empty.
    """
    readings = readings_of(text)
    if form in readings:
        moment = readings[form]
    else:
        unit = UNITS[form]
        if form in TWO_WAYS and not readings.keys().isdisjoint(TWO_WAYS):
            readings = {each: m for each, m in readings.items() if each[:2] == form[:2]}
            if not readings:
                raise ValueError(f"; in this column {_ORDERS[form[:2]]}")
        # Programs that know only days write a month, or a week, as its first day.
        of_unit = [
            moment
            for each, moment in readings.items()
            if UNITS[each] == unit
            or (UNITS[each], unit, moment.day) == ("day", "month", 1)
            or (UNITS[each], unit, moment.weekday()) == ("day", "week", 0)
        ]
        if len(of_unit) > 1:
            raise ValueError(
                "; day and month may be taken for each other, write 2024-12-31, or agree on "
                f'"form": "{min(readings)}" or "{max(readings)}" in the schema'
            )
        if not of_unit:
            raise ValueError(f"; the schema has {unit}s" if readings else "")
        (moment,) = of_unit
    if moment.tzinfo is not None:
        raise ValueError("; it has a time zone")
    return moment


class FormSurvey:
    """Collects all texts of a column of dates of a file, to find their form."""

    def __init__(self) -> None:
        self._seen = ""
        self._num_fitting, self._num_two_ways = Counter[str](), 0  # by order: DD or MM first
        self._examples: dict[str, str] = {}  # by form, the first text that fits it alone

    def add(self, texts: Sequence[str]) -> None:
        """Adds different texts of the column."""
        texts = [without_formula(text.strip()) for text in texts]
        self._seen = self._seen or form_seen(texts)
        for text in texts if has_two_ways(texts) else ():
            forms = readings_of(text).keys() & TWO_WAYS
            self._num_two_ways += bool(forms)
            self._num_fitting.update(form[:2] for form in forms)
            if len(forms) == 1:
                self._examples.setdefault(min(forms), text)

    def form(self, of_schema: str) -> tuple[str, str]:
        """Finds the form, and a text that shows whether the day stands first; empty if unknown.

        Args:
            of_schema: the schema's form, which is returned if all texts fit it.
        """
        fits = {order for order in _ORDERS if self._num_fitting[order] == self._num_two_ways}
        if not self._num_two_ways:
            return self._seen, ""
        if not self._examples or (of_schema in TWO_WAYS and (of_schema[:2] in fits or not fits)):
            return of_schema, ""
        order = max(_ORDERS, key=self._num_fitting.__getitem__)
        decided = next(each for each in self._examples if each[:2] == order)
        return decided, self._examples[decided]


def has_two_ways(texts: Iterable[str]) -> bool:
    """Whether some text looks like 1/2/2024, in which the day or the month may stand first."""
    return _LOOKS_TWO_WAYS.search("\n".join(texts)) is not None


def form_seen(texts: Iterable[str]) -> str:
    """Finds the form of the first text that fits only one; empty if no text does."""
    return next((min(r) for r in map(readings_of, map(str.strip, texts)) if len(r) == 1), "")


# From moments to numbers, and back to texts.


def count_of(day: date, unit: str) -> int:
    """Counts the days or weeks since the year 1, or the months since the year 0."""
    if unit == "month":
        return 12 * day.year + day.month - 1
    return day.toordinal() if unit == "day" else (day.toordinal() - 1) // 7


def day_at(count: int, unit: str) -> date:
    """The inverse of `count_of`; a month or week is returned as its first day."""
    if unit == "month":
        return date(count // 12, count % 12 + 1, 1)
    return date.fromordinal(count if unit == "day" else 7 * count + 1)


def form_of_days(form: str) -> str:
    """Finds the key of `UNITS` for a form: DD.MM.YYYY for D.M.YYYY hh:mm; else the form itself."""
    day = re.split("[Th ]", form)[0]
    full, clock = re.sub(r"\b([DM])\b", r"\1\1", day) if "W" not in day else day, form[len(day) :]
    return full if not clock or (UNITS.get(full) == "day" and clock[1:] in CLOCKS) else form


def written(day: date, form: str) -> str:
    """Writes a date or moment in a form; a month or week is written of any of its days."""
    form, clock = (parts := re.split("(?=[Th ])", form, maxsplit=1))[0], "".join(parts[1:])
    hour = f"{day:%I}" if "AM" in clock else f"{day:%H}"
    times = {"AM": f"{day:%p}", "hh": hour, "h": hour.lstrip("0") or "0", "mm": f"{day:%M}"}
    for sign, text in {**times, "ss": f"{day:%S}"}.items():
        clock = clock.replace(sign, text)
    year, month = f"{day.year:04}", f"{day.month:02}"
    if "Www" in form:
        of_week, week, weekday = day.isocalendar()
        text = form.replace("YYYY", f"{of_week:04}").replace("ww", f"{week:02}")
        return text.replace("D", f"{weekday}")
    text = form.replace("YYYY", year).replace("MM", month).replace("DD", f"{day.day:02}")
    return text.replace("M", f"{day.month}").replace("D", f"{day.day}") + clock
