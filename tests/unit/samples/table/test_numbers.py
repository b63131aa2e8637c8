"""Numbers in files: which spellings are read, which are reported, and which are refused."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mdgan.errors import BadInput
from mdgan.samples.table.identity import canonical, contents_of_files
from mdgan.samples.table.kind import RowCondition, TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, csv_of, parquet_of
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    NumberColumn,
    Schema,
    WholeColumn,
    problems_of,
)
from mdgan.samples.table.texts import texts_of_file

SEX = CategoryColumn(name="sex", categories=("F", "M"))
NAN = float("nan")


def number(low: float = -1e9, high: float = 1e9, **keys: Any) -> NumberColumn:
    return NumberColumn(name="x", **{"low": low, "high": high, "decimals": 3, **keys})


def whole(low: int = 0, high: int = 10**9, **keys: Any) -> WholeColumn:
    return WholeColumn(name="x", low=low, high=high, **keys)


def written(folder: Path, texts: Sequence[str], between: str = ";") -> Path:
    """A file of a column x of some texts, and another one."""
    path = folder / "site-1.csv"
    quoted = [f'"{text}"' if between in text else text for text in texts]
    lines = [f"x{between}sex", *(f"{text}{between}F" for text in quoted)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(folder: Path, column: AnyColumn, texts: Sequence[str], between: str = ";") -> list[float]:
    path = written(folder, texts, between)
    return [float(v) for v in read_rows(path, Schema(columns=(column, SEX))).values[:, 0]]


@pytest.mark.parametrize(
    ("texts", "between", "values"),
    [
        (["850", "1,250.5", "12,000"], ";", [850, 1250.5, 12000]),
        (["850", "1,250,000", "12,000"], ";", [850, 1250000, 12000]),
        (["850", "1,250"], ",", [850, 1250]),
        (["850", "1.250,5"], ";", [850, 1250.5]),
        (["850", "1.250.000", "1.250"], ",", [850, 1250000, 1250]),
        (["0.125", "1.250", "12.500"], ",", [0.125, 1.25, 12.5]),
        (["1.250", "12.500", "3.125"], ",", [1.25, 12.5, 3.125]),
        (["850", "0.125", "1.250"], ",", [850, 0.125, 1.25]),
        (["850", "0,125", "1,250"], ";", [850, 0.125, 1.25]),
        (["850", "1234,567", "1,250"], "\t", [850, 1234.567, 1.25]),
        (["850", "1 250", "12 000,5"], ";", [850, 1250, 12000.5]),
        (["850", "1\u00a0250", "12\u202f000"], ",", [850, 1250, 12000]),
        (["850", "1'250.5", "12’000"], ",", [850, 1250.5, 12000]),
        (["-1,250.5", "+3"], ";", [-1250.5, 3]),
        (["1e-05", "1.2E+10", "1e5", "12"], ",", None),
        (['="00123"', "7"], ";", [123, 7]),
        (["5", "", "NA", "1,5"], ";", [5, NAN, NAN, 1.5]),
    ],
)
def test_one_writing_of_a_column(
    texts: Sequence[str], between: str, values: list[float] | None, tmp_path: Path
) -> None:
    column = number(high=1e11, decimals=6, may_be_missing=True)
    values = values or [0.00001, 1.2e10, 1e5, 12]
    assert read(tmp_path, column, texts, between) == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize(
    ("texts", "between", "first", "second"),
    [
        (["850", "1,250"], ";", 1.25, 1250),
        (["850", "1,250"], "\t", 1.25, 1250),
        (["1.250", "850"], ",", 1.25, 1250),
        (["1.250", "850", "", "22.000"], ";", 1.25, 1250),
        (["-1,250", "3"], ";", -1.25, -1250),
        (["1,250 mg", "850 mg"], ";", 1.25, 1250),
    ],
)
def test_two_numbers_of_one_text_are_asked_for(
    texts: Sequence[str], between: str, first: float, second: float, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"unit": "mg"} if "mg" in texts[0] else {}
    column = number(-10000, 10000, may_be_missing=True, decimals=2, **keys)
    row = 2 + next(place for place, text in enumerate(texts) if set(text) & set(",."))
    with pytest.raises(BadInput) as refused:
        read(tmp_path, column, texts, between)
    sign = "," if "," in "".join(texts) else "."
    assert f"site-1.csv, row {row}, column x: " in str(refused.value)
    assert f" may be {first:g} or {second:g}, beside " in str(refused.value)
    for decimal, value in ((sign, first), ({".": ",", ",": "."}[sign], second)):
        column = number(-1e6, 1e6, may_be_missing=True, decimal=decimal, **keys)
        assert f'"decimal": "{decimal}"' in str(refused.value)
        assert read(tmp_path, column, texts, between)[row - 2] == value
        # What is written of it is read again.
        schema = Schema(columns=(column, SEX))
        rows = Rows(schema, np.array([[value, 0], [850, 0], [1.125, 1], [NAN, 1]]))
        for name, write in (("a.csv", csv_of), ("a.parquet", parquet_of)):
            (tmp_path / name).write_bytes(write(rows))
            again = read_rows(tmp_path / name, schema).values
            np.testing.assert_array_equal(again, rows.values)


def test_whole_numbers_leave_one_reading(tmp_path: Path) -> None:
    assert read(tmp_path, whole(), ["850", "1.250"], ",") == [850, 1250]
    assert read(tmp_path, whole(), ["850", "1,250"]) == [850, 1250]
    with pytest.raises(BadInput, match=r"'1,000' may be 1 or 1000, beside '850'"):
        read(tmp_path, whole(), ["850", "1,000"])
    assert read(tmp_path, whole(), ["1.000", "3.000"], ",") == [1, 3]
    for column in (whole(), number()):  # as Excel writes in countries of decimal commas
        with pytest.raises(BadInput, match=r"'1.000' may be 1 or 1000; write it otherwise"):
            read(tmp_path, column, ["1.000", "3.000"], ";")


def test_late_texts_decide_about_early_ones(tmp_path: Path) -> None:
    """More rows than are read at once, of which the last tells what points mean."""
    texts = ["1.250"] * 60_000
    assert read(tmp_path, number(), [*texts, "850", "7.5"], ",")[0] == 1.25
    assert read(tmp_path, number(), [*texts, "850", "1.000.000"], ",")[0] == 1250
    with pytest.raises(BadInput, match=r"row 2, column x: '1.250' may be"):
        read(tmp_path, number(), [*texts, "850"], ",")


@pytest.mark.parametrize(
    "text", ["1_000", "١٢", "１２", "nan5", "inf", "0x1F", "1e999", "1 2", "−5"]
)
def test_what_is_no_number(text: str, tmp_path: Path) -> None:
    for column, what in ((number(), "number"), (whole(), "whole number")):
        with pytest.raises(BadInput, match=f"row 3, column x: '{text}' is no {what}"):
            read(tmp_path, column, ["1", text])


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["1,250.5", "1.250,5"], "row 3, column x: '1.250,5' is no number"),
        (["1,5", "2,5", "1.5"], "row 4, column x: '1.5' is no number, as the others are written"),
        (["1,250,5", "3"], "row 2, column x: '1,250,5' is no number"),
        (["12,34,567", "3"], "row 2, column x: '12,34,567' is no number"),
        (["1 25", "3"], "row 2, column x: '1 25' is no number"),
        (["5 mg", "6 mg"], '\'5 mg\' has the unit mg; leave it out, or agree on "unit": "mg"'),
        (["12%", "7"], "row 2, column x: '12%' has the unit %; leave it out"),
        ([">89", "7"], "'>89' is no number; agree on \"above\": 89, if it is the end of a scale"),
        (["≤5", "7"], '\'≤5\' is no number; agree on "below": "<=5", if it'),
    ],
)
def test_what_does_not_fit_is_refused(texts: Sequence[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, number(), texts)
    assert says in str(refused.value)


def test_units(tmp_path: Path) -> None:
    dose = number(0, 5000, unit="mg")
    for texts, values in (
        (["5 mg", "6.5 mg"], [5, 6.5]),
        (["5mg", "6,5mg"], [5, 6.5]),
        (["5", "6.5"], [5, 6.5]),
        (["1.250,5 mg", "6 mg"], [1250.5, 6]),
    ):
        assert read(tmp_path, dose, texts) == values
    assert read(tmp_path, number(unit="%"), ["12 %", "3.5%"]) == [12, 3.5]
    assert read(tmp_path, number(unit="€"), ["€ 5", "€1,250.50", "€ 1,000.25"], "\t") == [
        *(5, 1250.5, 1000.25)
    ]
    for texts, says in (
        (["5 g", "6 g"], "row 2, column x: '5 g' has the unit g, and the schema has mg; convert"),
        (["5 mg", "6 g"], "row 3, column x: '6 g' has the unit g, and the schema has mg; convert"),
        (["5 mg", "6"], "row 3, column x: '6' has no unit, and other rows have mg; write it in"),
    ):
        with pytest.raises(BadInput) as refused:
            read(tmp_path, dose, texts)
        assert says in str(refused.value)


@pytest.mark.parametrize(
    ("column", "texts", "values"),
    [
        (whole(18, 89, above=89), [">89", "60", "≥90", "90+", "> 89"], [90, 60, 90, 90, 90]),
        (whole(18, 89, below=18), ["<18", "60", "<=17"], [17, 60, 17]),
        (whole(18, 89, below=18, above=89), ["<18", "60", ">89"], [17, 60, 90]),
        (number(0.5, 100, below=0.5), ["<0.5", "0.7", "< 0,5"], [0.499, 0.7, 0.499]),
        (number(0, 90, decimals=0, above="≥90"), [">=90", "90", "≥90"], [91, 90, 91]),
        (number(0, 1000, above=1000), [">1,000", "999.5", "1,000.0"], [1000.001, 999.5, 1000]),
    ],
)
def test_ends_of_a_scale(
    column: AnyColumn, texts: Sequence[str], values: list[float], tmp_path: Path
) -> None:
    if any("0,5" in text for text in texts):
        texts = [text.replace(".", ",") for text in texts]
    assert list(problems_of(Schema(columns=(column, SEX)))) == []
    assert read(tmp_path, column, texts) == values
    schema = Schema(columns=(column, SEX))
    rows = Rows(schema, np.array([[value, 0.0] for value in values]))
    assert rows.are_valid().all()
    for name, write in (("a.csv", csv_of), ("a.parquet", parquet_of)):
        (tmp_path / name).write_bytes(write(rows))
        np.testing.assert_array_equal(read_rows(tmp_path / name, schema).values, rows.values)
    kind = TableKind(schema)
    kind.learn(kind.counts(rows))
    np.testing.assert_array_equal(kind.decode(kind.encode(rows), None).values, rows.values)
    assert bool(kind.encode(rows).isfinite().all())


def test_what_lies_beyond_an_end_comes_out_as_its_text(tmp_path: Path) -> None:
    column = whole(60, 89, above=89)
    path = written(tmp_path, [*map(str, range(60, 90)), *[">89"] * 10])
    schema = Schema(columns=(column, SEX))
    rows = read_rows(path, schema)
    kind = TableKind(schema)
    kind.learn(kind.counts(rows))
    made = csv_of(kind.decode(kind.encode(rows), None)).decode().splitlines()
    assert made[1:] == [f"{n},F" for n in range(60, 90)] + [">89,F"] * 10
    noisy = torch.randn(500, *kind.shape).clamp(-1, 1)
    assert kind.decode(noisy, None).are_valid().all()
    assert RowCondition(schema, "x=>89").holds(rows).sum() == 10
    assert RowCondition(schema, "x>=80").holds(rows).sum() == 20


def test_a_scale_ends_where_its_bounds_do() -> None:
    for column, says in (
        (whole(0, 100, above=89), "column x: its bounds, 0 to 100, go beyond its end >89"),
        (number(0, 9, below=0.5), "column x: its bounds, 0 to 9, go beyond its end <0.5"),
        (whole(0, 9, above="<5"), "column x: end '<5' must begin with >"),
        (whole(0, 9, above="many"), "column x: 'many' is no end such as >89"),
    ):
        assert list(problems_of(Schema(columns=(column,)))) == [says]


def test_missing_codes(tmp_path: Path) -> None:
    column = number(18, 40, may_be_missing=True, missing=("-999", "999"))
    texts = ["20.5", "-999", "999", "-999.0", "999.00", "NA", "40"]
    expected = [20.5, NAN, NAN, NAN, NAN, NAN, 40]
    assert read(tmp_path, column, texts) == pytest.approx(expected, nan_ok=True)
    inside = whole(0, 1000, may_be_missing=True, missing=("99",))
    assert read(tmp_path, inside, ["98", "99.0", "99"]) == pytest.approx(
        [98, NAN, NAN], nan_ok=True
    )
    site = CategoryColumn(
        name="x", categories=("a", "b"), may_be_missing=True, missing=("unknown",)
    )
    assert read(tmp_path, site, ["a", "unknown"]) == pytest.approx([0, NAN], nan_ok=True)
    rows = Rows(Schema(columns=(column, SEX)), np.array([[NAN, 0.0]]))
    assert csv_of(rows) == b"x,sex\n,F\n"
    for wrong, says in (
        (number(0, 9, missing=("-9",)), "column x: has missing codes ('-9'); say \"may_be_missing"),
        (
            CategoryColumn(name="x", categories=("a", "b"), missing=("a",), may_be_missing=True),
            "column x: 'a' cannot be a category and missing",
        ),
    ):
        (result,) = problems_of(Schema(columns=(wrong,)))
        assert result.startswith(says)


def test_what_was_decided_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        read(tmp_path, number(), ["1.250,5", "2,5"])
        read(tmp_path, whole(), ["1", "2"])
    (warning,) = caplog.messages
    assert warning.endswith(
        "site-1.csv, column x: numbers are read with decimal commas and points between thousands"
    )


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        (["x;sex", "1;F", ";", "2;M", " ; "], 2),
        ([";", "x;sex", "1;F", "2;M"], 1),
        (["x;sex;;", "1;F;;", ";;;", "2;M;;"], 1),
        (["x;sex;", "1;F", "2;M;"], 0),
    ],
)
def test_what_spreadsheets_leave_is_skipped(
    lines: Sequence[str], number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("\n".join(lines))
    rows = read_rows(path, Schema(columns=(whole(), SEX)))
    assert rows.values.tolist() == [[1, 0], [2, 1]]
    assert len(contents_of_files(path, "")) == 2
    assert len(caplog.messages) == (number > 0)
    if number:
        assert f"{number} empty row" in caplog.messages[0]


def test_values_without_a_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("x;sex;\n1;F;\n2;M;7\n")
    with pytest.raises(BadInput, match="row 3: has a value in a column without a name; name it in"):
        read_rows(path, Schema(columns=(whole(), SEX)))


def test_a_file_without_a_header(tmp_path: Path) -> None:
    columns = (
        WholeColumn(name="column_1", low=0, high=9, may_be_missing=True),
        CategoryColumn(name="column_2", categories=("F", "M"), may_be_missing=True),
    )
    schema = Schema(columns=columns)
    path = tmp_path / "site-1.csv"
    path.write_text("1,\n2,M\n")
    values = read_rows(path, schema).values
    np.testing.assert_array_equal(values, [[1, NAN], [2, 1]])
    assert len(contents_of_files(path, "", no_header=True)) == 2
    path.write_bytes(csv_of(Rows(schema, values)))  # has one
    np.testing.assert_array_equal(read_rows(path, schema).values, values)


def test_a_line_of_values_for_names_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("45,F\n50,M\n")
    with pytest.raises(BadInput) as refused:
        read_rows(path, Schema(columns=(whole(), SEX)))
    assert str(refused.value).endswith(
        "its first line, 45, F, names no column of the schema (x, sex, …); write these names "
        "there, or give a map of them (mdgan schema map)"
    )


def test_accounts_know_texts_as_before(tmp_path: Path) -> None:
    for text, known in (
        ("1_000", "1000"),
        ("12E4", "120000"),
        ("1.50", "1.5"),
        ("5 mg", "5 mg"),
        ("12%", "12%"),
        ("1 250", "1 250"),
        (">89", ">89"),
    ):
        assert canonical(text) == known
    assert canonical("1,250", commas=True) == "1.25"
    path = written(tmp_path, ["1,250", "850"])
    (texts,) = texts_of_file(path)
    assert texts.commas
    rows = [row for row, _ in contents_of_files(path, "")]
    assert rows == [b"sex=F\x1fx=1.25", b"sex=F\x1fx=850"]


@pytest.mark.parametrize("text", ["1e400", "-9E999", "<1e400"])
@pytest.mark.parametrize("between", [",", ";"])
def test_a_first_number_that_no_computer_holds(text: str, between: str, tmp_path: Path) -> None:
    for column in (number(), whole()):
        with pytest.raises(BadInput, match=f"row 2, column x: '{text}' is no "):
            read(tmp_path, column, [text, "850", "1.5"], between)
    column = number(missing=(text,), may_be_missing=True)
    assert np.isnan(read(tmp_path, column, ["5", text, "7"], between)[1])
