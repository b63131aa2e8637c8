"""Files of rows: the values that are read, and the answer to each file that does not fit."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from mdgan.errors import BadInput
from mdgan.samples.table.columns import NumberColumn
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, csv_of, parquet_of
from mdgan.samples.table.schema import Schema
from tests.unit.samples.table.tables import HEADER, ROW, STUDY, VALUES, tables, written


def one_row(path: Path) -> list[float]:
    (row,) = read_rows(path, STUDY).values.tolist()
    return [float(value) for value in row]


@given(tables().filter(lambda rows: not np.isnan(rows.values).all(1).any()))
def test_what_is_written_is_read_again(rows: Rows) -> None:
    pytest.importorskip("pyarrow")
    for suffix, write in ((".csv", csv_of), (".parquet", parquet_of)):
        with TemporaryDirectory() as folder:
            path = Path(folder, f"rows{suffix}")
            path.write_bytes(write(rows))
            again = read_rows(path, rows.schema)
        np.testing.assert_array_equal(again.values, rows.values)


def test_three_decimals_beside_a_whole_number_are_read_as_they_were_written(
    tmp_path: Path,
) -> None:
    column = NumberColumn(name="dose", low=0, high=2000, decimals=3)
    rows = Rows(Schema(columns=(column,)), np.array([[1.0], [1.625], [-0.0]]))
    (tmp_path / "rows.csv").write_bytes(csv_of(rows))
    np.testing.assert_array_equal(read_rows(tmp_path / "rows.csv", rows.schema).values, rows.values)


def test_a_row_of_each_kind_of_column(tmp_path: Path) -> None:
    assert one_row(written(tmp_path, HEADER, ROW)) == VALUES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (",", ";"),
        (",", "\t"),
        ("yes", " yes "),
        ("yes", '"yes"'),
        ("44", "44.0"),
        ("70.5", "7.05e1"),
        ("70.5", "70.4600"),
        ("1980-02-03", "3.2.1980"),
        ("1980-02-03", "1980/02/03"),
        ("1980-02-03", "1980-02-03 00:00:00"),
        ("2020-05-06T07:08:09", "2020-05-06 07:08:09.7"),
        ("2020-05-06T07:08:09", "06.05.2020 07:08:09"),
        ("\n", "\r\n"),
        ("\n", "\n\n"),
        ("weight", "\ufeffweight"),
    ],
)
def test_the_same_row_in_other_words(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_bytes(f"{HEADER}\n{ROW}\n".replace(old, new).encode())
    assert one_row(path) == VALUES


def test_decimal_commas_between_semicolons(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER.replace(",", ";"), ROW.replace(",", ";").replace(".", ","))
    assert one_row(path) == VALUES


def test_names_with_other_separators_in_them(tmp_path: Path) -> None:
    schema = Schema(columns=tuple(replace(STUDY.columns[1], name=name) for name in ("a;b;c", "d")))
    assert read_rows(written(tmp_path, "a;b;c,d", "20,30"), schema).values.tolist() == [[20, 30]]
    quoted = written(tmp_path, '"a;b;c";d', "20;30")
    assert read_rows(quoted, schema).values.tolist() == [[20, 30]]


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    turned = (",".join(reversed(line.split(","))) for line in (HEADER, ROW))
    assert one_row(written(tmp_path, *turned)) == VALUES


@pytest.mark.parametrize("text", ["", "NA", "N/A", "NaN", "nan", "null", "None", ".", "?", " "])
def test_missing_values(text: str, tmp_path: Path) -> None:
    row = one_row(written(tmp_path, HEADER, ROW.replace("70.5", text)))
    assert np.isnan(row[0])
    assert row[1:] == VALUES[1:]


def test_a_column_that_may_be_missing_is_missing(tmp_path: Path) -> None:
    lines = (line.partition(",")[2] for line in (HEADER, ROW))
    row = one_row(written(tmp_path, *lines))
    assert np.isnan(row[0])
    assert row[1:] == VALUES[1:]


def test_flags_as_parquet_has_them(tmp_path: Path) -> None:
    schema = Schema(columns=(STUDY.columns[2],))
    path = written(tmp_path, "smoker", "True", "False")
    assert read_rows(path, schema).values.tolist() == [[1.0], [0.0]]
    contrary = replace(STUDY.columns[2], no="True", yes="False")
    assert read_rows(path, Schema(columns=(contrary,))).values.tolist() == [[0.0], [1.0]]


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name, age in (("b.csv", 30), ("a.tsv", 20), ("c.csv", 40)):
        written(tmp_path, HEADER, ROW.replace("44", str(age)), name=name)
    written(tmp_path, "no rows", name="README.md")
    written(tmp_path, "hidden", name=".a.csv")
    assert read_rows(tmp_path, STUDY).values[:, 1].tolist() == [20, 30, 40]


def test_many_rows(tmp_path: Path) -> None:
    """More than are read at once, with a fault in the last."""
    lines = [HEADER, *[ROW] * 50_001]
    assert len(read_rows(written(tmp_path, *lines), STUDY)) == 50_001
    with pytest.raises(BadInput, match=r"row 50003, column age: '17' is outside"):
        read_rows(written(tmp_path, *lines, ROW.replace("44", "17")), STUDY)


MISSING = "is missing, and the schema does not let it be"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], " is empty; its first line must name the columns"),
        ([" "], " is empty; its first line must name the columns"),
        ([HEADER], " has no row; give a file with rows below its header"),
        (
            [ROW],
            " its first line, 70.5, 44, yes, Bonn, II, names no column of the schema (weight, age, "
            "smoker, site, stage, …)",
        ),
        (
            [HEADER + ",city", ROW + ",Köln"],
            ', column city: is not in the schema; leave it out, add it there, or to its "ignore"',
        ),
        ([HEADER + ",age", ROW + ",44"], ", column age: occurs twice in the header"),
        (
            [HEADER.replace(",age", ""), ROW.replace(",44", "")],
            ", column age: is missing, and the schema does not let it be; add it, or agree on "
            '"may_be_missing": true',
        ),
        (
            [HEADER, ROW, ROW + ",1"],
            ", row 3: has 8 values, and the header names 7 columns; quote texts that hold ','",
        ),
        *(
            (
                [*above, HEADER, ROW],
                f", row {len(above) + 1}: has 7 values, and the header names 1 columns; take out "
                "lines above the names of the columns",
            )
            for above in (["sep=,"], ["# of 2023"], ["Ward 3", ""])
        ),
        (
            [HEADER, ROW, "", "Source: the registry"],
            ", row 4: has 1 values, and the header names 7 columns; take out lines that are no "
            "rows",
        ),
        ([HEADER, ROW, ROW.replace("44", "old")], ", row 3, column age: 'old' is no whole number"),
        ([HEADER, ROW, ROW.replace("44", "1.5")], ", row 3, column age: '1.5' is no whole number"),
        (
            [HEADER, "", ROW.replace("44", "121")],
            ", row 3, column age: '121' is outside the schema's bounds, 18 to 120",
        ),
        ([HEADER, ROW.replace("44", "inf")], ", row 2, column age: 'inf' is no whole number"),
        ([HEADER, ROW.replace("44", "")], f", row 2, column age: {MISSING}"),
        ([HEADER, ROW.replace("yes", "Yes")], ", row 2, column smoker: 'Yes' is none of its"),
        ([HEADER, ROW.replace("Bonn", "Köln")], ", row 2, column site: 'Köln' is none of its"),
        (
            [HEADER, ROW.replace("Bonn", "\x1b[2J" + "x" * 100)],
            f", row 2, column site: '?[2J{'x' * 36}' is none of its categories",
        ),
        (
            [HEADER, ROW.replace("1980-02-03", "2/3/1980")],
            ", row 2, column born: '2/3/1980' is no date such as 2024-12-31",
        ),
        (
            [HEADER, ROW.replace("1980", "2021")],
            ", row 2, column born: '2021-02-03' is outside the schema's bounds, 1900-01-01 to "
            "2020-12-31",
        ),
        (
            [HEADER, ROW + "Z"],
            ", row 2, column seen: '2020-05-06T07:08:09Z' is no moment such as 2024-12-31T23:59:59",
        ),
        (
            [HEADER, ROW.replace("70.5", '"70,5"')],
            ", row 2, column weight: '70,5' is no number; write a decimal point, and no other "
            "points or commas",
        ),
        (
            [HEADER.replace(",", ";"), ROW.replace(",", ";").replace("70.5", "1.070,5")],
            ", row 2, column weight: '1.070,5' is outside the schema's bounds, 0 to 300",
        ),
        (
            [HEADER, ROW.replace("Bonn", 'B"on"n').replace("yes", '"y"es')],
            ", row 2: is no row of CSV (',' expected after '\"')",
        ),
    ],
)
def test_what_does_not_fit(lines: list[str], says: str, tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        read_rows(path, STUDY)
    message = str(refused.value)
    assert message.startswith(f"{path}{says}" if says[0] == "," else f"{path}:{says}"), message
    assert message.isprintable()


def test_a_target_that_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, ROW, ROW.replace("70.5", "NA"))
    assert len(read_rows(path, STUDY)) == 2
    with pytest.raises(BadInput) as refused:
        read_rows(path, STUDY, "weight")
    says = f"{path}, row 3, column weight: is missing, and every row needs the target"
    assert str(refused.value) == f"{says}; mdgan schema check names all such rows"


@pytest.mark.parametrize(
    ("encoding", "named"), [("latin1", "latin1"), ("utf-16", "UTF-16"), ("cp1252", "latin1")]
)
def test_other_encodings(encoding: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_bytes(f"{HEADER}\n{ROW}\n".replace("Bonn", "Köln").encode(encoding))
    with pytest.raises(BadInput) as refused:
        read_rows(path, STUDY)
    where = "" if named == "UTF-16" else ", first in row 2, column site"
    assert str(refused.value) == (
        f"{path}: is not UTF-8 but maybe {named}{where}; save it as UTF-8, for example with "
        f"iconv -f {named} -t UTF-8"
    )


def test_paths_without_rows(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "none.csv", "no such file; give a CSV or Parquet file, or a folder of them"),
        (tmp_path, "no file of rows in it (.csv .tsv .txt .parquet)"),
        (written(tmp_path, HEADER, name="rows.xlsx"), "must end in .csv, .tsv, .txt, .parquet"),
    ):
        with pytest.raises(BadInput) as refused:
            read_rows(path, STUDY)
        assert str(refused.value) == f"{path}: {says}"


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = written(tmp_path, HEADER, ROW, name="rows.parquet")
    with pytest.raises(BadInput, match="is no Parquet file that can be read"):
        read_rows(path, STUDY)


def test_all_problems_can_be_had(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, ROW.replace("44", "1"), ROW.replace("yes", "?"))
    results: list[str] = []
    rows = read_rows(path, STUDY, on_problem=lambda problem: results.append(str(problem)))
    assert results == [
        f"{path}, row 2, column age: '1' is outside the schema's bounds, 18 to 120",
        f"{path}, row 3, column smoker: {MISSING}",
    ]
    assert np.isnan(rows.values).sum() == 2
