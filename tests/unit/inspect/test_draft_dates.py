"""Drafts of columns of dates: their form, and the questions that a draft leaves open."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import csv_of
from mdgan.samples.table.schema import AnyColumn, DateColumn, Schema, TimeColumn, problems_of
from tests.unit.inspect.test_schema_draft import NUM_ROWS, drafted, of_columns, some

R = Random(1)
YMD = [(R.randint(2018, 2023), R.randint(1, 12), R.randint(1, 28)) for _ in range(NUM_ROWS)]


def in_form(pattern: str) -> list[str]:
    return [pattern.format(y=y, m=m, d=d) for y, m, d in YMD]


@pytest.mark.parametrize(
    ("pattern", "form"),
    [
        ("{y}-{m:02}-{d:02}", ""),
        ("{d:02}.{m:02}.{y}", "DD.MM.YYYY"),
        ("{y}/{m:02}/{d:02}", "YYYY/MM/DD"),
        ("{y}{m:02}{d:02}", "YYYYMMDD"),
        ("{y}{m:02}{d:02}.0", "YYYYMMDD"),
        ("{y}{m:02}", "YYYYMM"),
        ("{y}-{m:02}", "YYYY-MM"),
        ("{m:02}/{y}", "MM/YYYY"),
        ("{m:02}.{y}", "MM.YYYY"),
        ("{y}-W{d:02}", "YYYY-Www"),
        ("{d}/{m}/{y}", "D/M/YYYY"),
        ("{m:02}-{d:02}-{y}", "MM-DD-YYYY"),
    ],
)
def test_the_form_is_drafted(pattern: str, form: str, tmp_path: Path) -> None:
    proposal = drafted(tmp_path, {"x": in_form(pattern)})
    assert proposal.left_out == []
    column = proposal.schema.columns[1]
    assert isinstance(column, DateColumn)
    assert (column.form or "") == form
    assert (column.low, column.high) == ("2018-01-01", "2023-12-31")
    rows = read_rows(tmp_path / "site-1.csv", proposal.schema)  # all fit
    assert len(rows) == NUM_ROWS


@pytest.mark.parametrize(
    "clock", ["", "T07:08:{m:02}", " {m:02}:08:00", " {m:02}:{d:02}", " {m}:08 PM"]
)
@pytest.mark.parametrize(
    "day", ["{y}-{m:02}-{d:02}", "{d:02}.{m:02}.{y}", "{m}/{d}/{y}", "{y}{m:02}{d:02}"]
)
def test_samples_are_written_as_the_rows_were(day: str, clock: str, tmp_path: Path) -> None:
    texts = in_form(day + clock)
    schema = drafted(tmp_path, {"x": texts}).schema
    written = csv_of(read_rows(tmp_path / "site-1.csv", schema)).decode().splitlines()
    assert [line.split(",")[1] for line in written[1:]] == texts


@pytest.mark.parametrize("form", ["DD.MM.YYYY hh", "YYYY-MM hh:mm", "Y-M-D", "YYYY-MM-DD  hh:mm"])
def test_a_form_that_is_none_is_refused(form: str) -> None:
    column = DateColumn(name="x", low="2018-01-01", high="2023-12-31", form=form)
    assert list(problems_of(Schema(columns=(column,)))) != []


def test_eight_digits_are_said_to_be_dates(tmp_path: Path) -> None:
    (warning,) = of_columns(drafted(tmp_path, {"x": in_form("{y}{m:02}{d:02}")}))
    assert warning.startswith("x: numbers such as 2018")
    assert warning.endswith("are all dates, so they are read as YYYYMMDD")


def test_fourteen_digits_are_moments(tmp_path: Path) -> None:
    proposal = drafted(tmp_path, {"x": in_form("{y}{m:02}{d:02}0708{m:02}")}).schema.columns[1]
    assert isinstance(proposal, TimeColumn)
    assert proposal.form == "YYYYMMDD"


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        (
            "x",
            ["31/12/2024", "12/31/2024", *in_form("{m}/{m}/{y}")[2:]],
            "has the day first in '31/12/2024' (row 2 of site-1.csv) and the month first in "
            "'12/31/2024' (row 3 of site-1.csv); write 2024-12-31",
        ),
        (
            "x",
            [*in_form("{y}-{m:02}-{d:02}")[:-1], "unknown"],
            "has dates, but in 1 row others, such as 'unknown' (row 401 of site-1.csv); correct or "
            "empty those",
        ),
        (
            "x",
            ["99999999"] * 40 + in_form("{y}{m:02}{d:02}")[40:],
            "has dates, but in 40 rows others, such as '99999999' (row 2 of site-1.csv); correct "
            "or empty those",
        ),
        (
            "x",
            ["2024-12", *in_form("{y}-{m:02}-{d:02}")[1:]],
            "names days in some rows and months in others; write all alike",
        ),
        (
            "x",
            [f"{d}.{m}.{y % 100}" for y, m, d in YMD],
            "has dates of two-digit years, like '{0}'; write 2024-12-31",
        ),
        (
            "x",
            [f"{d}-DEC-{y}" for y, _, d in YMD],
            "has dates with months in words, like '{0}'; write 2024-12-31",
        ),
        (
            "x",
            some("2010-11", "2011-12", "2008-09"),
            "has '2010-11', which may be a month or two years; write all digits",
        ),
    ],
)
def test_what_is_doubtful(name: str, values: Sequence[str], says: str, tmp_path: Path) -> None:
    proposal = drafted(tmp_path, {name: values})
    assert proposal.left_out == [f"{name}: {says.format(values[0])}"]


@pytest.mark.parametrize(
    ("name", "number", "day"),
    [
        ("visit_date", 44_197, "2021-01-01"),
        ("Geburtsdatum", 20_000, "1954-10-03"),
        ("timestamp", 1_700_000_000, "2023-11-14"),
    ],
)
def test_counted_days_are_asked_about(name: str, number: int, day: str, tmp_path: Path) -> None:
    proposal = drafted(
        tmp_path, {name: [number + n % 3 - 1 for n in range(NUM_ROWS - 1)] + [number]}
    )
    assert proposal.schema.columns[1].kind == "whole"
    assert any(
        f"numbers such as {number}" in line and f"where this one is {day}" in line
        for line in proposal.warnings
    )
    assert not any(
        "may be days" in line for line in drafted(tmp_path, {"x": some(44_197, 44_198, 3)}).warnings
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["1900-01-01"] * 40 + in_form("{y}-{m:02}-{d:02}")[40:], "1900-01-01 in 40 rows often"),
        (["9999-12-31"] * 40 + in_form("{y}-{m:02}-{d:02}")[40:], "9999-12-31 in 40 rows often"),
        (["0001-01-01", *in_form("{y}-{m:02}-{d:02}")[1:]], "0001-01-01 in 1 row often"),
        (
            ["1911-11-11"] * 40 + in_form("{y}-{m:02}-{d:02}")[40:],
            "the first year, 1911, tells of 40",
        ),
    ],
)
def test_dates_that_stand_for_none(values: Sequence[str], says: str, tmp_path: Path) -> None:
    (warning,) = of_columns(drafted(tmp_path, {"x": values}))
    assert warning.startswith(f"x: {says}")


def test_codes_of_dates_are_asked_about_as_the_file_writes_them(tmp_path: Path) -> None:
    values = ["01.01.1900"] * 40 + ["31.12.9999"] * 30 + in_form("{d:02}.{m:02}.{y}")[70:]
    (warning,) = of_columns(drafted(tmp_path, {"x": values}))
    assert warning == (
        "x: 1900-01-01 in 40 rows and 9999-12-31 in 30 rows often stand for no date; if that "
        'stands for missing values, write "missing": ["01.01.1900", "31.12.9999"] and '
        '"may_be_missing": true, and bounds of the others'
    )


def kind_of(folder: Path, values: Sequence[object]) -> AnyColumn:
    return drafted(folder, {"x": values}).schema.columns[1]


def test_numbers_that_are_no_dates(tmp_path: Path) -> None:
    for values in (
        [R.randint(100_000, 999_999) for _ in range(NUM_ROWS)],
        [R.randint(10_000_000, 99_999_999) for _ in range(NUM_ROWS)],
        some(201_001, 201_002, 201_003),
        [round(R.uniform(1, 12), 4) for _ in range(NUM_ROWS)],
    ):
        assert kind_of(tmp_path, values).kind in ("whole", "number")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("x", "{d:02}{m:02}{y}"),
        ("x", "{m}{d:02}{y}"),
        ("born", "6{y!s:.1}{m:02}{d:02}"),
        ("born", "{d}{m:02}64"),
    ],
)
def test_other_orders_of_digits_are_asked_about(name: str, pattern: str, tmp_path: Path) -> None:
    proposal = drafted(tmp_path, {name: [text.lstrip("0") for text in in_form(pattern)]})
    assert any("may be dates of another order" in line for line in proposal.warnings)


def test_days_among_moments_are_said_to_be_midnight(tmp_path: Path) -> None:
    days = in_form("{d:02}.{m:02}.{y}")
    moments = [day if n % 4 else f"{day} 07:30" for n, day in enumerate(days)]
    (warning,) = of_columns(drafted(tmp_path, {"x": moments}))
    assert warning == (
        f"x: {3 * NUM_ROWS // 4} rows without a time of day, such as '{days[1]}' (row 3 of "
        "site-1.csv), are taken as midnight"
    )
