"""Dates and times in files: the moment of each text, and the form in which moments are written."""

from pathlib import Path

import pytest
from msgspec import UNSET

from mdgan.errors import BadInput
from mdgan.samples.table.moments import UNITS, readings_of, written
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, csv_of, parquet_of
from mdgan.samples.table.schema import (
    DateColumn,
    MomentColumn,
    NumberColumn,
    Schema,
    TimeColumn,
    problems_of,
)
from tests.unit.samples.table.tables import written as file_of


def dates(form: str = "", low: str = "1900-01-01", high: str = "2099-12-31") -> Schema:
    column = DateColumn(name="x", low=low, high=high, form=form or UNSET)
    return Schema(columns=(column, NumberColumn(name="n", low=0, high=9)))


def read(folder: Path, schema: Schema, *texts: str) -> list[str]:
    """The moments of a file's rows, as ISO texts."""
    rows = read_rows(file_of(folder, "x,n", *(f"{text},1" for text in texts)), schema)
    column = schema.columns[0]
    assert isinstance(column, MomentColumn)
    return [column.moment_at(value).isoformat() for value in rows.values[:, 0].tolist()]


def refused(folder: Path, schema: Schema, *texts: str) -> list[str]:
    """What is said of rows that do not fit."""
    results: list[str] = []
    path = file_of(folder, "x,n", *(f"{text},1" for text in texts))
    read_rows(path, schema, on_problem=lambda problem: results.append(str(problem)))
    return [line.removeprefix(f"{path}, ") for line in results]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2024-12-31", "2024-12-31T00:00:00"),
        ("2024-12-31T23:59", "2024-12-31T23:59:00"),
        ("2024-12-31 23:59:58.5", "2024-12-31T23:59:58.500000"),
        ("2024-12-31 11:59 PM", "2024-12-31T23:59:00"),
        ("31.12.2024 7:05", "2024-12-31T07:05:00"),
        ("2024/12/31", "2024-12-31T00:00:00"),
        ("20241231", "2024-12-31T00:00:00"),
        ("20241231.0", "2024-12-31T00:00:00"),
        ("20241231070809", "2024-12-31T07:08:09"),
        ("2024-12", "2024-12-01T00:00:00"),
        ("12/2024", "2024-12-01T00:00:00"),
        ("2024-W05", "2024-01-29T00:00:00"),
        ("2024-W05-3", "2024-01-31T00:00:00"),
        ("31/12/2024", "2024-12-31T00:00:00"),
        ("12-31-2024", "2024-12-31T00:00:00"),
        ("0001-01-01", "0001-01-01T00:00:00"),
    ],
)
def test_one_moment(text: str, says: str) -> None:
    assert [moment.isoformat() for moment in readings_of(text).values()] == [says]


@pytest.mark.parametrize(
    "text",
    [
        *("", "2024", "2024-1", "31.12.24", "24-12-31", "2024-13-01", "2023-02-29", "0000-01-01"),
        *("2024-12-31x", "2024-12-31 25:00", "2024-12-31 13:00 PM", "99999999", "202413", "12:30"),
        *("٢٠٢٤-١٢-٣١", "２０２４-12-31", "2024-W60", "2024-12-31-07", "12024-01-01", "2024-01/02"),
        *("\u200b2024-12-31", "2024-12-31_07:00", "1_2.2024", "1-2/2024", "+2024-01-01"),
    ],
)
def test_no_moment(text: str) -> None:
    assert not readings_of(text)


@pytest.mark.parametrize("form", UNITS)
def test_dates_are_written_as_they_are_read(form: str, tmp_path: Path) -> None:
    days = {"day": "2024-05-02", "month": "2024-05-01", "week": "2024-04-29"}
    schema = dates(form)
    column = schema.columns[0]
    assert isinstance(column, MomentColumn)
    text = written(column.moment_at(column.read(days[UNITS[form]])), form)
    assert read(tmp_path, schema, text) == [days[UNITS[form]]]
    assert column.write(column.read(text)) == text
    assert not list(problems_of(schema))


@pytest.mark.parametrize("form", ["DD.MM.YYYY", "MM/YYYY", "YYYY-Www", "MM/DD/YYYY", "YYYYMMDD"])
def test_files_carry_the_form_and_parquet_dates(form: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    schema = dates(form)
    path = file_of(tmp_path, "x,n", f"{written(readings_of('2024-07-01')['YYYY-MM-DD'], form)},1")
    rows = read_rows(path, schema)
    for name, content in (("a.csv", csv_of(rows)), ("a.parquet", parquet_of(rows))):
        (tmp_path / name).write_bytes(content)
        assert (read_rows(tmp_path / name, schema).values == rows.values).all()
    assert str(parquet.read_schema(tmp_path / "a.parquet").field("x").type).startswith("date32")
    assert csv_of(rows).decode() == path.read_text()


@pytest.mark.parametrize(
    ("form", "text"), [("DD.MM.YYYY", "31.12.2024 07:08:09"), ("YYYYMMDD", "20241231070809")]
)
def test_times_have_a_form(form: str, text: str) -> None:
    column = TimeColumn(name="x", low="2024-01-01", high="2024-12-31T23:59:59", form=form)
    assert column.write(column.read(text)) == text
    assert list(problems_of(Schema(columns=(column,)))) == []


def test_a_form_that_is_none() -> None:
    for column in (
        DateColumn(name="x", low="2024-01-01", high="2024-12-31", form="dd.mm.yyyy"),
        TimeColumn(name="x", low="2024-01-01", high="2024-12-31", form="YYYY-MM"),
    ):
        (problem,) = problems_of(Schema(columns=(column,)))
        assert "is none of YYYY-MM-DD, DD.MM.YYYY" in problem


def test_one_text_decides_for_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    many = ["1/2/2024"] * 50_001
    result = read(tmp_path, dates(), *many, "31/12/2024")
    assert set(result) == {"2024-02-01", "2024-12-31"}
    assert read(tmp_path, dates("DD/MM/YYYY"), "1/2/2024", "12/31/2024") == [
        "2024-01-02",
        "2024-12-31",
    ]
    lines = [line for line in caplog.messages if "dates are read as" in line]
    assert lines[0].endswith("column x: dates are read as DD/MM/YYYY, as '31/12/2024' has to be")
    assert "MM/DD/YYYY" in lines[1]


def test_the_schema_decides_where_both_fit(tmp_path: Path) -> None:
    assert read(tmp_path, dates("MM/DD/YYYY"), "1/2/2024") == ["2024-01-02"]
    assert read(tmp_path, dates("DD-MM-YYYY"), "1/2/2024") == ["2024-02-01"]
    (message,) = refused(tmp_path, dates(), "1/2/2024")
    assert message.startswith("row 2, column x: '1/2/2024' is no date such as 2024-12-31; day and ")


def test_mixed_orders_are_refused(tmp_path: Path) -> None:
    (message,) = refused(tmp_path, dates(), "31/12/2024", "30/12/2024", "12/31/2024")
    assert message.startswith("row 4, column x: '12/31/2024' is no date such as 2024-12-31")
    assert message.endswith("in this column the day stands first")


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        ("", "2024-12", "the schema has days"),
        ("", "2024-W05", "the schema has days"),
        ("YYYY-MM", "2024-12-31", "the schema has months"),
        ("", "2024-12-31 07:00", "it has a time of day"),
        ("", "2024-12-31T07:00Z", "it has a time zone"),
        ("", "31.12.24", "is no date such as 2024-12-31"),
        ("", "45292", "is no date such as 2024-12-31"),
    ],
)
def test_what_is_no_date_of_a_column(form: str, text: str, why: str, tmp_path: Path) -> None:
    (message,) = refused(tmp_path, dates(form), text)
    assert message.endswith(why)


def test_a_site_may_write_another_form(tmp_path: Path) -> None:
    texts = "31.12.2024", "2024/12/31", "20241231", "2024-W53-2".replace("W53-2", "W01-2")
    assert read(tmp_path, dates("DD.MM.YYYY"), *texts) == ["2024-12-31"] * 3 + ["2024-01-02"]


def test_old_columns_keep_their_hash() -> None:
    schema = Schema(columns=(DateColumn(name="x", low="2024-01-01", high="2024-12-31"),))
    assert schema.sha256 == "78664daa95a091765974f3b75a5ff398de9811ce227dc2f6239da3f345a3f833"


def test_rows_with_years_of_few_digits(tmp_path: Path) -> None:
    schema = dates(low="0001-01-01", high="9999-12-31")
    assert read(tmp_path, schema, "0001-01-01", "9999-12-31") == ["0001-01-01", "9999-12-31"]
    rows = read_rows(file_of(tmp_path, "x,n", "0001-01-01,1"), schema)
    assert csv_of(Rows(schema, rows.values)).decode() == "x,n\n0001-01-01,1\n"
    with pytest.raises(BadInput, match="row 2, column x"):
        read(tmp_path, dates(), "9999-12-31")


def test_spreadsheets_keep_dates_as_formulas(tmp_path: Path) -> None:
    assert read(tmp_path, dates(), '"=""31.12.2024"""') == ["2024-12-31"]
    texts = '"=""1/2/2024"""', '"=""31/1/2024"""'
    assert read(tmp_path, dates(), *texts) == ["2024-02-01", "2024-01-31"]


@pytest.mark.parametrize("text", ["1900-01-01", "01.01.1900", "1900/01/01", "19000101"])
def test_codes_of_missing_dates_however_written(text: str, tmp_path: Path) -> None:
    column = DateColumn(
        name="x",
        low="2024-01-01",
        high="2024-12-31",
        missing=("1900-01-01", "unknown"),
        may_be_missing=True,
    )
    path = file_of(tmp_path, "x,n", "2024-01-02,1", f"{text},1", "unknown,1")
    values = read_rows(path, Schema(columns=(column, dates().columns[1]))).values[:, 0].tolist()
    assert values[0] == 1
    assert all(value != value for value in values[1:])
    path = file_of(tmp_path, "x,n", "1/2/2024,1", "31/1/2024,1", "1/1/1900,1")
    values = read_rows(path, Schema(columns=(column, dates().columns[1]))).values[:, 0].tolist()
    assert values[:2] == [31, 30]
    assert values[2] != values[2]


def test_numbers_and_dates_that_are_decided_by_all_texts(tmp_path: Path) -> None:
    path = file_of(tmp_path, "x;n", "1/2/2024;1.250,5", "31/1/2024;850,0", ";")
    column = DateColumn(name="x", low="2024-01-01", high="2024-12-31", may_be_missing=True)
    number = NumberColumn(name="n", low=0, high=9999, decimals=1, may_be_missing=True)
    values = read_rows(path, Schema(columns=(column, number))).values
    assert values[:2].tolist() == [[31, 1250.5], [30, 850]]
