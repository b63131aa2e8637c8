"""In which form the dates of a column stand, as far as all its texts tell, and what is doubtful."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from numpy.typing import NDArray

from mdgan.inspect.number_drafts import missing_if, scale_of, words_as_missing
from mdgan.inspect.table_facts import EPOCH, FEW, ColumnFacts, LeftOut, NumbersByRows, rows_in_words
from mdgan.samples.table import moments, schema
from mdgan.samples.table.schema import AnyColumn
from mdgan.samples.table.texts import shown

_FIRST_YEAR, _LAST_YEAR = 1850, 2150  # of numbers that are taken for dates
_FAR = 0.25  # of the span of the other dates
_A_YEAR = 365.0
_MOST_TRIED = 1000
_CODES = frozenset({"0001-01-01", "1753-01-01", "1899-12-30", "1899-12-31", "1900-01-01"}) | {
    *("1960-01-01", "1970-01-01", "2099-12-31", "2999-12-31", "8888-08-08", "9999-12-31")
}
_ABOVE_AVERAGE = 4
_DATE_NAME = re.compile(
    r"dat(e|um|a|o)s?(?![a-rt-z])|fecha|birth|born|geb(oren|urt)|dob|naissance|nacimiento|nascita"
    r"|visit|besuch|admi|discharge|aufnahme|entlass|death|deceased|onset|seen|timestamp|zeitpunkt",
    re.IGNORECASE,
)
_SHORT_YEARS = re.compile(r"(\d\d?)([./-])(\d\d?)\2(\d\d)(?: .*)?", re.ASCII)
_IN_WORDS = re.compile(r"(\d{1,2}\W*)?[^\W\d_]{3,9}\W*(\d{1,2}\W+)?(\d{4}|(?<=-)\d\d)(?: .*)?")
_SPREADSHEET = datetime(1899, 12, 30)
_SINCE = (  # least and most usual number, seconds of one, and since when they count
    (15_000, 60_000, 86_400, _SPREADSHEET, "days of a spreadsheet"),
    (3e8, 4e9, 1, EPOCH, "seconds since 1970"),
    (3e11, 4e12, 1e-3, EPOCH, "milliseconds since 1970"),
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Dates(NamedTuple):
    """The moments of a column, in seconds since 1970, how many rows have each, and their form."""

    seconds: Floats
    counts: Counts
    form: str
    told: list[str]


def of_texts(facts: ColumnFacts) -> Dates:
    """What the moments of a column are, of which each row has one; LeftOut if that is doubtful."""
    if facts.has_zones:
        raise LeftOut("has moments with a time zone; write all in the same, and leave it out")
    rows = {form: each.num_rows for form, each in facts.moments.items()}
    two_ways = rows.keys() & moments.TWO_WAYS
    number = facts.num_moments - sum(rows[form] for form in rows.keys() - two_ways)
    fitting, decided, told = Counter[str](), dict[str, str](), list[str]()
    for form in two_ways:
        fitting[form[:2]] += rows[form]
    for text in facts.texts if two_ways else ():
        if len(forms := moments.readings_of(text).keys() & two_ways) == 1:
            decided.setdefault(min(forms)[:2], text)
    orders = [order for order in fitting if fitting[order] == number]
    if len(orders) > 1:
        raise LeftOut(
            f"has dates like {shown(next(iter(facts.texts)))!r}, where day and month may be taken "
            "for each other; write 2024-12-31"
        )
    if two_ways and not orders:
        day, month = (facts.with_row(decided.get(order, "")) for order in ("DD", "MM"))
        raise LeftOut(
            f"has the day first in {day} and the month first in {month}; write 2024-12-31"
        )
    forms = {form for form in rows if form not in two_ways or form[:2] in orders}
    form, unit = min(forms), _unit_of(forms)
    if two_ways:
        example = decided.get(orders[0], "")
        told.append(f"dates are read as {min(forms & two_ways)}, as {example!r} has to be")
    if len(forms) > 1:
        form = moments.FORMS[unit][0]
        told.append(f"dates are written in several forms ({', '.join(sorted(forms))})")
    elif form == "YYYY-MM" and all(int(t[2:4]) + 1 == int(t[5:]) for t in facts.texts):
        example = next(iter(facts.texts))
        raise LeftOut(f"has {example!r}, which may be a month or two years; write all digits")
    together = NumbersByRows()
    for each in forms:
        together.values += facts.moments[each].values
        together.counts += facts.moments[each].counts
    return Dates(*together.together(), form, told)


def of_numbers(facts: ColumnFacts) -> Dates | None:
    """The dates of a column whose numbers all are dates, as 20241231 or 12.2024; None if not."""
    if not facts.num_numbers:
        return None
    values, counts = facts.numbers.together()
    found = Counter(facts.texts)
    if facts.decimals != 4 or facts.has_more_texts:  # not 12.2024
        tried = values[:: len(values) // _MOST_TRIED + 1]
        if 2 * sum(_plain_reading(f"{value:.15g}") is not None for value in tried) < len(tried):
            return None
        found = Counter(dict(zip(map("{:.15g}".format, values), counts.tolist(), strict=True)))
    read = {text: reading for text in found if (reading := _plain_reading(text))}
    num_dates = sum(found[text] for text in read)
    forms = {form for form, _ in read.values()}
    is_sure = forms == {"YYYYMMDD"} or len(read) >= FEW or _DATE_NAME.search(facts.name)
    if 2 * num_dates < facts.num_values or not is_sure:
        return None
    if num_dates < facts.num_values:
        others = (text for text in facts.texts if text.removesuffix(".0") not in read)
        raise LeftOut(_others(facts, num_dates, next(others, "")))
    _unit_of(forms)
    seconds: Counter[float] = Counter()
    for text, (_, moment) in read.items():
        seconds[(moment - EPOCH).total_seconds()] += found[text]
    together = NumbersByRows()
    together.add(seconds)
    form = min(forms)
    told = [f"numbers such as {min(read)} are all dates, so they are read as {form}"]
    return Dates(*together.together(), form, told)


def _unit_of(forms: Iterable[str]) -> str:
    units = sorted({moments.UNITS[form] for form in forms})
    if len(units) > 1:
        raise LeftOut(f"names {units[0]}s in some rows and {units[1]}s in others; write all alike")
    return units[0]


def _plain_reading(text: str) -> tuple[str, datetime] | None:
    """The form and the moment of a number that may be a date of our times."""
    for form, moment in moments.readings_of(text).items():
        if _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return form, moment
    return None


def refuse_others(facts: ColumnFacts) -> None:
    """Refuses what is mostly dates, and dates that leave out or spell a part."""
    texts = [text for text in facts.texts if not moments.readings_of(text)]
    is_mostly_dates = facts.num_moments and 2 * facts.num_moments >= facts.num_values
    if is_mostly_dates and texts and len(facts.texts) > FEW:
        raise LeftOut(_others(facts, facts.num_moments, texts[0]))
    is_named = _DATE_NAME.search(facts.name) and len(facts.texts) > 1
    if facts.num_values == facts.num_others and (is_named or len(facts.texts) > FEW):
        example = shown(next(iter(facts.texts)))
        if all(map(_SHORT_YEARS.fullmatch, facts.texts)):
            raise LeftOut(f"has dates of two-digit years, like {example!r}; write 2024-12-31")
        if all(map(_IN_WORDS.fullmatch, facts.texts)):
            raise LeftOut(f"has dates with months in words, like {example!r}; write 2024-12-31")


def _others(facts: ColumnFacts, num_dates: int, text: str) -> str:
    count, such = rows_in_words(facts.num_values - num_dates), facts.with_row(text)
    return f"has dates, but in {count} others, such as {such}; correct or empty those"


def column_of(facts: ColumnFacts, found: Dates) -> tuple[AnyColumn, list[str]]:
    """The column of moments, and what its author should look at; LeftOut if it says nothing."""
    seconds, counts = found.seconds, found.counts
    if seconds[0] == seconds[-1]:
        raise LeftOut("has the same moment in every row")
    first, last = (EPOCH + timedelta(seconds=float(seconds[place])) for place in (0, -1))
    low, high = datetime(first.year, 1, 1), datetime(last.year, 12, 31, 23, 59, 59)
    told = [*words_as_missing(facts), *found.told, *_early_or_late(found)]
    values = seconds - (low - EPOCH).total_seconds()
    form: str | UnsetType = _as_read(facts, found.form)
    form = UNSET if form in (moments.ISO, f"{moments.ISO}Thh:mm:ss") else form
    if (seconds % 86_400).any():
        if without := [text for text in facts.texts if ":" not in text and "T" not in text]:
            number = rows_in_words(sum(facts.texts[text] for text in without))
            such = facts.with_row(without[0])
            told.append(f"{number} without a time of day, such as {such}, are taken as midnight")
        bounds = (0.0, (high - low).total_seconds())
        scale = scale_of(facts, values, counts, bounds=bounds, is_exact=True)
        begin, end = low.isoformat(), high.isoformat()
        return schema.TimeColumn(low=begin, high=end, form=form, **scale), told
    first_day, last_day = low.date().isoformat(), high.date().isoformat()
    column = schema.DateColumn(name=facts.name, low=first_day, high=last_day, form=form)
    values = values / 86_400
    if moments.UNITS[found.form] != "day":
        values = np.array([column.units_since_low(EPOCH + timedelta(seconds=s)) for s in seconds])
    scale = scale_of(facts, values, counts, bounds=column.bounds, is_exact=True)
    return replace(column, **scale), told


def _as_read(facts: ColumnFacts, form: str) -> str:
    """The form in which texts come out as they were read, if there is one."""
    days = (form, form.replace("DD", "D").replace("MM", "M"))
    clocks = ("", *(f"{sign}{clock}" for sign in " T" for clock in moments.CLOCKS))
    read = {text: moments.readings_of(text) for text in [*facts.texts][:_MOST_TRIED]}
    for each in (f"{day}{clock}" for clock in clocks for day in days):
        if all(form in m and moments.written(m[form], each) == text for text, m in read.items()):
            return each
    return form


def may_be_counted(facts: ColumnFacts) -> Iterator[str]:
    """What numbers may mean: dates with the day first or with short years, or counted days."""
    if facts.num_numbers < facts.num_values:
        return
    values, counts = facts.numbers.together()
    is_named = _DATE_NAME.search(facts.name) is not None
    for length, order in ((8, "dmy"), (8, "mdy"), (6, "ymd"), (6, "dmy")):
        if (length == 8 or is_named) and all(
            _is_short_date(value, length, order) for value in values
        ):
            yield (
                f"numbers such as {int(values[0]):0{length}} may be dates of another order, or of "
                "two-digit years; if they are, write dates such as 2024-12-31"
            )
            return
    if not is_named:
        return
    middle = float(values[np.searchsorted(np.cumsum(counts), counts.sum() / 2)])
    for least, most, size, since, what in _SINCE:
        if least <= middle <= most:
            day = since + timedelta(seconds=middle * size)
            yield (
                f"numbers such as {middle:.15g} may be {what}, where this one is {day:%Y-%m-%d}; "
                "if they are, write dates"
            )


def _is_short_date(value: float, size: int, order: str) -> bool:
    """Whether a number is a date of our times whose parts follow each other in some order."""
    text, signs = f"{int(value):0{size}}", order.replace("y", "y" * (size - 4))
    signs = signs.replace("d", "dd").replace("m", "mm")
    if len(text) != size:
        return False
    year, month, day = (
        "".join(c for c, s in zip(text, signs, strict=True) if s == p) for p in "ymd"
    )
    return bool(_plain_reading(f"{year if size == 8 else f'20{year}'}{month}{day}"))


def _early_or_late(found: Dates) -> Iterator[str]:
    """What the years of bounds tell of rows that are far from the others, or stand for no date."""
    days, counts = found.seconds / 86_400, found.counts
    ends = (0, len(days) - 1)
    inner = days[-2] - days[1] if len(days) > FEW else days[-1] - days[0]
    known = np.isin(days, [(date.fromisoformat(code) - EPOCH.date()).days for code in _CODES])
    heavy = counts > max(FEW, _ABOVE_AVERAGE * counts.mean())
    codes, said = list[str](), list[str]()
    for place in sorted({*ends, *np.flatnonzero(known & heavy).tolist()}):
        day = (EPOCH + timedelta(days=float(days[place]))).date()
        rows = rows_in_words(int(counts[place]))
        gap = abs(days[place] - days[1 if place == 0 else -2])
        if known[place]:
            codes.append(f'"{moments.written(day, found.form)}"')
            said.append(f"{day} in {rows}")
        elif len(days) > 2 and gap > _FAR * inner and (counts[place] < FEW or gap > _A_YEAR):
            yield (
                f"the {'last' if place else 'first'} year, {day.year}, tells of {rows}, far from "
                "the others; write the bound that your protocol has"
            )
    if codes:
        stand = "stand" if codes[1:] else "stands"
        yield f"{' and '.join(said)} often {stand} for no date; {missing_if(codes)}"
