"""Finds the columns of a site that hold dates, and how it writes them, for `schema_draft`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from numpy.typing import NDArray

from mdgan.inspect.number_drafts import advise_missing, scale_of, words_as_missing
from mdgan.inspect.table_facts import EPOCH, FEW, ColumnFacts, LeftOut, NumbersByRows, rows_in_words
from mdgan.samples.table import moments, schema
from mdgan.samples.table.schema import AnyColumn
from mdgan.samples.table.texts import shown

_FIRST_YEAR, _LAST_YEAR = 1850, 2150  # only numbers between them count as dates
_FAR = 0.25  # a date is far if its gap is a larger share of the span of the others
_YEAR_DAYS = 365.0
_MOST_TRIED = 1000
_NO_DATES = frozenset({"0001-01-01", "1753-01-01", "1899-12-30", "1899-12-31", "1900-01-01"}) | {
    *("1960-01-01", "1970-01-01", "2099-12-31", "2999-12-31", "8888-08-08", "9999-12-31")
}
_TIMES_AVERAGE = 4  # a placeholder has more rows than this many times an average day
_DATE_NAME = re.compile(
    r"dat(e|um|a|o)s?(?![a-rt-z])|fecha|birth|born|geb(oren|urt)|dob|naissance|nacimiento|nascita"
    r"|visit|besuch|admi|discharge|aufnahme|entlass|death|deceased|onset|seen|timestamp|zeitpunkt",
    re.IGNORECASE,
)
_SHORT_YEARS = re.compile(r"(\d\d?)([./-])(\d\d?)\2(\d\d)(?: .*)?", re.ASCII)
_IN_WORDS = re.compile(r"(\d{1,2}\W*)?[^\W\d_]{3,9}\W*(\d{1,2}\W+)?(\d{4}|(?<=-)\d\d)(?: .*)?")
_SPREADSHEET = datetime(1899, 12, 30)
_COUNTED_UNITS = (  # the least and the most usual number, seconds of a unit, day 0, and words
    (15_000, 60_000, 86_400, _SPREADSHEET, "days of a spreadsheet"),
    (3e8, 4e9, 1, EPOCH, "seconds since 1970"),
    (3e11, 4e12, 1e-3, EPOCH, "milliseconds since 1970"),
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Dates(NamedTuple):
    """The moments of a column."""

    seconds: Floats  # since 1970, rising, each once
    counts: Counts  # how many rows have each
    form: str  # such as YYYY-MM-DD
    remarks: list[str]  # what the author of the schema should look at


def read_texts(facts: ColumnFacts) -> Dates:
    """Reads a column of which every text is a moment; LeftOut if its form is doubtful."""
    if facts.has_zones:
        raise LeftOut("has moments with a time zone; write all in the same, and leave it out")
    rows = {form: each.num_rows for form, each in facts.moments.items()}
    two_ways = rows.keys() & moments.TWO_WAYS
    num_two_ways = facts.num_moments - sum(rows[form] for form in rows.keys() - two_ways)
    num_rows_by_order, example_by_order, remarks = Counter[str](), dict[str, str](), list[str]()
    for form in two_ways:
        num_rows_by_order[form[:2]] += rows[form]
    for text in facts.texts if two_ways else ():
        if len(forms := moments.readings_of(text).keys() & two_ways) == 1:
            example_by_order.setdefault(min(forms)[:2], text)
    orders = [order for order in num_rows_by_order if num_rows_by_order[order] == num_two_ways]
    if len(orders) > 1:
        raise LeftOut(
            f"has dates like {shown(next(iter(facts.texts)))!r}, where day and month may be taken "
            "for each other; write 2024-12-31"
        )
    if two_ways and not orders:
        day, month = (facts.locate_text(example_by_order.get(order, "")) for order in ("DD", "MM"))
        raise LeftOut(
            f"has the day first in {day} and the month first in {month}; write 2024-12-31"
        )
    forms = {form for form in rows if form not in two_ways or form[:2] in orders}
    form, unit = min(forms), _one_unit(forms)
    if two_ways:
        example = example_by_order.get(orders[0], "")
        remarks.append(f"dates are read as {min(forms & two_ways)}, as {example!r} has to be")
    if len(forms) > 1:
        form = moments.FORMS[unit][0]
        remarks.append(f"dates are written in several forms ({', '.join(sorted(forms))})")
    elif form == "YYYY-MM" and all(int(t[2:4]) + 1 == int(t[5:]) for t in facts.texts):
        example = next(iter(facts.texts))
        raise LeftOut(f"has {example!r}, which may be a month or two years; write all digits")
    merged = NumbersByRows()
    for each in forms:
        merged.values += facts.moments[each].values
        merged.counts += facts.moments[each].counts
    return Dates(*merged.merge_pieces(), form, remarks)


def read_numbers(facts: ColumnFacts) -> Dates | None:
    """Reads a column whose numbers are dates, as 20241231 or 12.2024; None if they are none."""
    if not facts.num_numbers:
        return None
    values, counts = facts.numbers.merge_pieces()
    times = Counter(facts.texts)
    if facts.decimals != 4 or facts.has_more_texts:  # not 12.2024
        sampled = values[:: len(values) // _MOST_TRIED + 1]
        if 2 * sum(_plain_reading(f"{value:.15g}") is not None for value in sampled) < len(sampled):
            return None
        times = Counter(dict(zip(map("{:.15g}".format, values), counts.tolist(), strict=True)))
    readings = {text: reading for text in times if (reading := _plain_reading(text))}
    num_dates = sum(times[text] for text in readings)
    forms = {form for form, _ in readings.values()}
    is_sure = forms == {"YYYYMMDD"} or len(readings) >= FEW or _DATE_NAME.search(facts.name)
    if 2 * num_dates < facts.num_values or not is_sure:
        return None
    if num_dates < facts.num_values:
        other_texts = (text for text in facts.texts if text.removesuffix(".0") not in readings)
        raise LeftOut(_reason_of_mixture(facts, num_dates, next(other_texts, "")))
    _one_unit(forms)
    seconds: Counter[float] = Counter()
    for text, (_, moment) in readings.items():
        seconds[(moment - EPOCH).total_seconds()] += times[text]
    merged = NumbersByRows()
    merged.add_piece(seconds)
    form = min(forms)
    remarks = [f"numbers such as {min(readings)} are all dates, so they are read as {form}"]
    return Dates(*merged.merge_pieces(), form, remarks)


def _one_unit(forms: Iterable[str]) -> str:
    units = sorted({moments.UNITS[form] for form in forms})
    if len(units) > 1:
        raise LeftOut(f"names {units[0]}s in some rows and {units[1]}s in others; write all alike")
    return units[0]


def _plain_reading(text: str) -> tuple[str, datetime] | None:
    """Reads a number as a date between 1850 and 2150: its form and moment, or None."""
    for form, moment in moments.readings_of(text).items():
        if _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return form, moment
    return None


def refuse_incomplete(facts: ColumnFacts) -> None:
    """Refuses columns of dates and other texts, of two-digit years, and of months in words."""
    other_texts = [text for text in facts.texts if not moments.readings_of(text)]
    is_mostly_dates = facts.num_moments and 2 * facts.num_moments >= facts.num_values
    if is_mostly_dates and other_texts and len(facts.texts) > FEW:
        raise LeftOut(_reason_of_mixture(facts, facts.num_moments, other_texts[0]))
    is_named = _DATE_NAME.search(facts.name) and len(facts.texts) > 1
    if facts.num_values == facts.num_others and (is_named or len(facts.texts) > FEW):
        example = shown(next(iter(facts.texts)))
        if all(map(_SHORT_YEARS.fullmatch, facts.texts)):
            raise LeftOut(f"has dates of two-digit years, like {example!r}; write 2024-12-31")
        if all(map(_IN_WORDS.fullmatch, facts.texts)):
            raise LeftOut(f"has dates with months in words, like {example!r}; write 2024-12-31")


def _reason_of_mixture(facts: ColumnFacts, num_dates: int, text: str) -> str:
    count, example = rows_in_words(facts.num_values - num_dates), facts.locate_text(text)
    return f"has dates, but in {count} others, such as {example}; correct or empty those"


def draft_column(facts: ColumnFacts, dates: Dates) -> tuple[AnyColumn, list[str]]:
    """Drafts the column of some dates, with remarks for its author; LeftOut if all are equal."""
    seconds, counts = dates.seconds, dates.counts
    if seconds[0] == seconds[-1]:
        raise LeftOut("has the same moment in every row")
    first, last = (EPOCH + timedelta(seconds=float(seconds[place])) for place in (0, -1))
    low, high = datetime(first.year, 1, 1), datetime(last.year, 12, 31, 23, 59, 59)
    remarks = [*words_as_missing(facts), *dates.remarks, *_warn_of_far_years(dates)]
    values = seconds - (low - EPOCH).total_seconds()
    form: str | UnsetType = _form_as_written(facts, dates.form)
    form = UNSET if form in (moments.ISO, f"{moments.ISO}Thh:mm:ss") else form
    if (seconds % 86_400).any():
        if timeless := [text for text in facts.texts if ":" not in text and "T" not in text]:
            rows = rows_in_words(sum(facts.texts[text] for text in timeless))
            example = facts.locate_text(timeless[0])
            remarks.append(
                f"{rows} without a time of day, such as {example}, are taken as midnight"
            )
        bounds = (0.0, (high - low).total_seconds())
        scale = scale_of(facts, values, counts, bounds=bounds, is_exact=True)
        begin, end = low.isoformat(), high.isoformat()
        return schema.TimeColumn(low=begin, high=end, form=form, **scale), remarks
    first_day, last_day = low.date().isoformat(), high.date().isoformat()
    column = schema.DateColumn(name=facts.name, low=first_day, high=last_day, form=form)
    values = values / 86_400
    if moments.UNITS[dates.form] != "day":
        values = np.array([column.units_since_low(EPOCH + timedelta(seconds=s)) for s in seconds])
    scale = scale_of(facts, values, counts, bounds=column.bounds, is_exact=True)
    return replace(column, **scale), remarks


def _form_as_written(facts: ColumnFacts, form: str) -> str:
    """Finds the form, with or without zeros and a time, that writes all texts as the site does."""
    days = (form, form.replace("DD", "D").replace("MM", "M"))
    clocks = ("", *(f"{sign}{clock}" for sign in " T" for clock in moments.CLOCKS))
    read = {text: moments.readings_of(text) for text in [*facts.texts][:_MOST_TRIED]}
    for trial in (f"{day}{clock}" for clock in clocks for day in days):
        if all(form in m and moments.written(m[form], trial) == t for t, m in read.items()):
            return trial
    return form


def warn_of_numbers(facts: ColumnFacts) -> Iterator[str]:
    """Warns of numbers that may be dates: day first, with two-digit years, or counted days."""
    if facts.num_numbers < facts.num_values:
        return
    values, counts = facts.numbers.merge_pieces()
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
    for least, most, size, since, what in _COUNTED_UNITS:
        if least <= middle <= most:
            day = since + timedelta(seconds=middle * size)
            yield (
                f"numbers such as {middle:.15g} may be {what}, where this one is {day:%Y-%m-%d}; "
                "if they are, write dates"
            )


def _is_short_date(value: float, size: int, order: str) -> bool:
    """Whether a number of `size` digits is a date between 1850 and 2150 in an order as `dmy`."""
    text, signs = f"{int(value):0{size}}", order.replace("y", "y" * (size - 4))
    signs = signs.replace("d", "dd").replace("m", "mm")
    if len(text) != size:
        return False
    year, month, day = (
        "".join(c for c, s in zip(text, signs, strict=True) if s == p) for p in "ymd"
    )
    return bool(_plain_reading(f"{year if size == 8 else f'20{year}'}{month}{day}"))


def _warn_of_far_years(dates: Dates) -> Iterator[str]:
    """Warns of first and last years that reveal few rows, and of days that stand for no date."""
    days, counts = dates.seconds / 86_400, dates.counts
    ends = (0, len(days) - 1)
    inner = days[-2] - days[1] if len(days) > FEW else days[-1] - days[0]
    is_code = np.isin(days, [(date.fromisoformat(day) - EPOCH.date()).days for day in _NO_DATES])
    is_frequent = counts > max(FEW, _TIMES_AVERAGE * counts.mean())
    codes, examples = list[str](), list[str]()
    for place in sorted({*ends, *np.flatnonzero(is_code & is_frequent).tolist()}):
        day = (EPOCH + timedelta(days=float(days[place]))).date()
        rows = rows_in_words(int(counts[place]))
        gap = abs(days[place] - days[1 if place == 0 else -2])
        if is_code[place]:
            codes.append(f'"{moments.written(day, dates.form)}"')
            examples.append(f"{day} in {rows}")
        elif len(days) > 2 and gap > _FAR * inner and (counts[place] < FEW or gap > _YEAR_DAYS):
            yield (
                f"the {'last' if place else 'first'} year, {day.year}, tells of {rows}, far from "
                "the others; write the bound that your protocol has"
            )
    if codes:
        stand = "stand" if codes[1:] else "stands"
        yield f"{' and '.join(examples)} often {stand} for no date; {advise_missing(codes)}"
