"""A site's own names, spellings and units, ignored columns, and the category of other values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdgan.errors import BadInput
from mdgan.samples.table.identity import contents_of_files
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import (
    CategoryColumn,
    NumberColumn,
    OrderedColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
    problems_of,
    read_schema,
    schema_text,
)
from mdgan.samples.table.site_map import SiteView, read_map
from mdgan.samples.table.texts import Problem
from tests.unit.samples.table.tables import STUDY, written

HERE = Schema(
    columns=(
        WholeColumn(name="age", low=0, high=120),
        CategoryColumn(name="sex", categories=("F", "M"), may_be_missing=True),
        NumberColumn(name="weight", low=0, high=300, decimals=1, unit="kg", may_be_missing=True),
        YesNoColumn(name="ill", may_be_missing=True),
    ),
    person="patient",
    ignore=("mrn",),
)
MAP: dict[str, Any] = {
    "Alter": {"name": "age"},
    "Geschlecht": {"name": "sex", "values": {"w": "F", "m": "M", "weiblich": "F"}},
    "Gewicht (lb)": {"name": "weight", "factor": 0.45359237, "missing": ["-9"]},
    "Patienten-Nr": {"name": "patient"},
    "Bemerkung": {"name": ""},
    "Fall": {"name": "mrn"},
}
HEADER = "Alter;Geschlecht;Gewicht (lb);Patienten-Nr;Bemerkung;Fall"


def map_of(folder: Path, columns: dict[str, Any] = MAP, **more: Any) -> Path:
    path = folder / "site-map.json"
    path.write_text(json.dumps({"columns": columns, **more}))
    return path


def refusal(folder: Path, columns: dict[str, Any], **more: Any) -> str:
    with pytest.raises(BadInput) as refused:
        read_map(map_of(folder, columns, **more), HERE)
    assert str(refused.value).startswith(str(folder / "site-map.json"))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_file_is_read_under_the_names_and_in_the_units_of_the_schema(tmp_path: Path) -> None:
    rows = [
        "44;w;154,3;A-1;x;1",
        "60,0;m;1.201,0;A-2;x;2",
        "61;weiblich;-9;A-3;x;3",
        "62;M;NA;A-4;;",
    ]
    path = written(tmp_path, HEADER, *rows[:1], rows[1].replace("1.201", "201"), *rows[2:])
    site_map = read_map(map_of(tmp_path), HERE)
    read = read_rows(path, HERE, site_map=site_map)
    nan = np.nan
    expected = [[44, 0, 70.0, nan], [60, 1, 91.2, nan], [61, 0, nan, nan], [62, 1, nan, nan]]
    np.testing.assert_array_equal(read.values, expected)
    assert read.persons is not None
    assert [*read.persons] == ["A-1", "A-2", "A-3", "A-4"]


@pytest.mark.parametrize(
    ("texts", "kilograms"),
    [
        (["1,201.5", "154.0"], [545.0, 69.9]),
        (["1.201,5", "154,0"], [545.0, 69.9]),
        (["154 lb", "100 lb"], [69.9, 45.4]),
        (["0", "661.4"], [0.0, 300.0]),
        (["661.3", "5e2"], [300.0, 226.8]),
    ],
)
def test_numbers_are_converted_as_their_file_writes_them(
    texts: list[str], kilograms: list[float], tmp_path: Path
) -> None:
    schema = Schema(columns=(NumberColumn(name="kg", low=0, high=1000, decimals=1),))
    if max(kilograms) <= 300:
        schema = Schema(columns=(NumberColumn(name="kg", low=0, high=300, decimals=1),))
    path = written(tmp_path, "lb;x", *(f"{text};" for text in texts))
    factor = {"factor": 0.45359237, "unit": "lb"}
    columns = {"lb": {"name": "kg", **factor}, "x": {"name": ""}}
    site_map = read_map(map_of(tmp_path, columns), schema)
    read = read_rows(path, schema, site_map=site_map)
    assert read.values[:, 0].tolist() == kilograms
    assert read.are_valid().all()


def test_a_unit_that_the_map_does_not_name_is_refused(tmp_path: Path) -> None:
    schema = Schema(columns=(NumberColumn(name="kg", low=0, high=300, decimals=1, unit="kg"),))
    site_map = read_map(
        map_of(tmp_path, {"w": {"name": "kg", "factor": 0.45, "unit": "lb"}}), schema
    )
    assert read_rows(written(tmp_path, "w", "100 lb"), schema, site_map=site_map).values == 45
    for text in ("100 kg", "100 st"):
        with pytest.raises(BadInput, match=r"row 2, column kg .*has the unit (kg|st)"):
            read_rows(written(tmp_path, "w", text), schema, site_map=site_map)


def test_an_offset_turns_fahrenheit_into_celsius(tmp_path: Path) -> None:
    schema = Schema(columns=(NumberColumn(name="temp", low=30, high=45, decimals=1),))
    columns = {"temp": {"name": "temp", "factor": 5 / 9, "offset": -160 / 9}}
    path = written(tmp_path, "temp", "98.6", "104", "86", "113")
    read = read_rows(path, schema, site_map=read_map(map_of(tmp_path, columns), schema))
    assert read.values[:, 0].tolist() == [37.0, 40.0, 30.0, 45.0]


def test_what_cannot_be_read_is_named_by_the_names_of_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path, HEADER, "44;w;154,3;A-1;x;1", "200;d;abc;A-2;x;2", "44;w;900,1;A-2;x;2"
    )
    problems: list[Problem] = []
    site_map = read_map(map_of(tmp_path), HERE)
    read_rows(path, HERE, on_problem=problems.append, site_map=site_map)
    assert [(each.row, each.column) for each in problems] == [
        (3, "age (Alter in the file)"),
        (3, "sex (Geschlecht in the file)"),
        (3, "weight (Gewicht (lb) in the file)"),
        (4, "weight (Gewicht (lb) in the file)"),
    ]
    assert "'d' is none of its categories" in problems[1].why
    assert "'900.1' is outside" in problems[3].why.replace(",", ".")


def test_a_map_must_fit_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, "Alter;sex;patient", "44;F;A-1")
    columns = {"Alter": {"name": "age"}, "Gewicht": {"name": "weight", "factor": 0.5}}
    read = read_rows(path, HERE, site_map=read_map(map_of(tmp_path, columns), HERE))
    np.testing.assert_array_equal(read.values, [[44, 0, np.nan, np.nan]])  # it may be missing
    with pytest.raises(BadInput, match="has no column Gewicht, which the map names"):
        read_rows(
            written(tmp_path, "Alter,weight,patient", "44,70,A-1"),
            HERE,
            site_map=read_map(map_of(tmp_path, columns), HERE),
        )
    with pytest.raises(BadInput, match="has no column Alter, which the map names"):
        read_rows(
            written(tmp_path, "age;patient", "44;A-1"),
            HERE,
            site_map=read_map(map_of(tmp_path, columns), HERE),
        )
    both = written(tmp_path, "Alter,age,patient", "44,44,A-1")
    with pytest.raises(BadInput, match=r"column age \(Alter in the file\): occurs twice"):
        read_rows(both, HERE, site_map=read_map(map_of(tmp_path, columns), HERE))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": {"name": "ages"}}, "column a: the schema has no column 'ages'"),
        ({"a": {"name": "age"}, "b": {"name": "age"}}, "column b: is age, and so is a"),
        ({"a": {"name": "sex", "values": {"d": ""}}}, "'d' is '', which must be filled in"),
        ({"a": {"name": "sex", "values": {"d": "X"}}}, "'d' is 'X', which is none of F, M"),
        ({"a": {"name": "age", "values": {"d": "old"}}}, "'d' is 'old', which is no"),
        ({"a": {"name": "age", "values": {"d": "900"}}}, "which is outside the schema's bounds"),
        ({"a": {"name": "sex", "values": {"d": "F"}, "missing": ["d"]}}, '"missing" alone'),
        ({"a": {"name": "age", "missing": ["9"]}}, "does not let age be missing"),
        ({"a": {"name": "sex", "factor": 2}}, "has a unit or a factor, and sex has no numbers"),
        ({"a": {"name": "age", "factor": 0}}, "must be a number above 0"),
        ({"a": {"name": "age", "factor": -1}}, "must be a number above 0"),
        ({"a": {"name": "weight", "unit": "lb"}}, "is in lb, and the schema in kg: say its factor"),
        ({"a": {"name": "weight", "factor": 2, "decimals": 40}}, "decimals 40 must be 0 to 12"),
        ({"a": {"name": "patient", "values": {"1": "2"}}}, "nothing but its name may be mapped"),
        ({"a": {"name": "age", "factr": 2}}, "is no map (Object contains unknown field"),
        ({"a": "age"}, "is no map"),
    ],
)
def test_what_a_map_cannot_say(columns: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, columns)


def test_what_a_draft_is_not_sure_of_is_refused_until_it_is_confirmed(tmp_path: Path) -> None:
    message = refusal(tmp_path, {}, unsure={"Größe": {"name": "weight", "why": "is it weight?"}})
    assert "unsure Größe: is it weight?; move it to" in message
    assert "no map" in refusal(tmp_path, {}, unsured={})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"columns": {"a": {"name": "age"}, "a": {"name": "sex"}}}',
        b"[" * 9999,
    ],
)
def test_other_files_are_no_maps(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="is no map"):
        read_map(path, HERE)
    with pytest.raises(BadInput, match="cannot be read"):
        read_map(tmp_path / "none.json", HERE)
    path.write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(BadInput):
        read_map(path, HERE)


def test_texts_are_composed_before_they_are_compared(tmp_path: Path) -> None:
    decomposed = {"Gro\u0308\u00dfe": {"name": "sex", "values": {"ma\u0308nnlich": "M"}}}
    site_map = read_map(map_of(tmp_path, decomposed), HERE)
    assert [*site_map.columns] == ["Größe"]
    assert site_map.columns["Größe"].in_schema_spelling(["männlich", " männlich "]) == ["M", "M"]


def test_codes_of_programs_that_have_only_floats(tmp_path: Path) -> None:
    schema = Schema(columns=(CategoryColumn(name="sex", categories=("F", "M")),))
    columns = {"SEX": {"name": "sex", "values": {"1": "M", "2": "F"}}}
    path = written(tmp_path, "SEX", "1.0", "2", "2.0")
    read = read_rows(path, schema, site_map=read_map(map_of(tmp_path, columns), schema))
    assert read.values[:, 0].tolist() == [1, 0, 0]


def test_a_map_of_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "s.parquet"
    table = {"Alter": [44, 60], "Gewicht": [154.3, None], "ID": ["A", "B"]}
    parquet.write_table(pa.table(table), path)
    columns = {"Alter": {"name": "age"}, "Gewicht": {"name": "weight", "factor": 0.45359237}}
    site_map = read_map(map_of(tmp_path, {**columns, "ID": {"name": "patient"}}), HERE)
    read = read_rows(path, HERE, site_map=site_map)
    np.testing.assert_array_equal(read.values[:, [0, 2]], [[44, 70.0], [60, np.nan]])


# What the schema ignores, and which category stands for others.


def test_ignored_columns_are_not_read(tmp_path: Path) -> None:
    schema = Schema(columns=HERE.columns[:1], ignore=("mrn", "name"))
    for header, row in (("mrn,age,name", "x,44,Ann"), ("age", "44"), ("name,age", '"a,b",44')):
        assert read_rows(written(tmp_path, header, row), schema).values.tolist() == [[44]]
    with pytest.raises(BadInput, match=r'column city: is not in the schema; .*"ignore"'):
        read_rows(written(tmp_path, "age,city", "44,Bonn"), schema)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (Schema(columns=HERE.columns, ignore=("age",)), "ignore age: is read, too"),
        (Schema(columns=HERE.columns, person="p", ignore=("p",)), "ignore p: is read, too"),
        (
            Schema(columns=(CategoryColumn(name="x", categories=("a", "b"), other="c"),)),
            "column x: other 'c' is none of its categories",
        ),
        (
            Schema(columns=(OrderedColumn(name="x", categories=("a", "b"), other="a"),)),
            "column x: other: what is not known has no place in an order",
        ),
    ],
)
def test_schemas_that_contradict_themselves(schema: Schema, says: str, tmp_path: Path) -> None:
    assert says in next(iter(problems_of(schema)))
    path = tmp_path / "study.json"
    path.write_text(schema_text(schema))
    with pytest.raises(BadInput, match=says.partition(":")[0]):
        read_schema(path)


def test_hashes_of_schemas_without_these_keys_stay() -> None:
    assert STUDY.sha256.startswith("0ef07f8cf2966042")
    assert '"ignore"' not in schema_text(STUDY)
    assert '"other"' not in schema_text(STUDY)


def test_a_category_stands_for_those_that_a_site_has_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    column = CategoryColumn(name="site", categories=("Bonn", "rest"), other="rest")
    schema = Schema(columns=(column, HERE.columns[1]))
    rows = ["Bonn,F", "Ulm,M", "Köln,F", "Ulm,F", "rest,", ",M"]
    path = written(tmp_path, "site,sex", *rows[:5])
    assert read_rows(path, schema).values[:, 0].tolist() == [0, 1, 1, 1, 1]
    (warning,) = [line for line in caplog.messages if "other" in line]
    assert (
        "column site: 3 rows have 2 categories that the schema has not ('Ulm', 'Köln')" in warning
    )
    with pytest.raises(BadInput, match="is missing, and the schema does not let it be"):
        read_rows(written(tmp_path, "site,sex", *rows), schema)
    with pytest.raises(BadInput, match="'X' is none of its categories"):
        read_rows(written(tmp_path, "site,sex", "Ulm,X"), schema)


def test_a_column_that_a_site_lacks_may_be_missing_if_the_schema_says_so(tmp_path: Path) -> None:
    read = read_rows(written(tmp_path, "age,patient", "44,A-1"), HERE)
    np.testing.assert_array_equal(read.values, [[44, np.nan, np.nan, np.nan]])
    with pytest.raises(BadInput, match="column age: is missing, and the schema does not let it be"):
        read_rows(written(tmp_path, "sex,patient", "F,A-1"), HERE)


# By what rows are known.


def test_a_mapped_row_is_known_as_one_that_was_written_so_by_hand(tmp_path: Path) -> None:
    site = written(tmp_path, HEADER, "44;w;154,3;A-1;x;1", "61;M;-9;A-3;y;2", name="site.csv")
    by_hand = written(
        tmp_path, "patient,weight,age,sex", "A-1,70.0,44,F", "A-3,,61,M", name="hand.csv"
    )
    view = SiteView(HERE, read_map(map_of(tmp_path), HERE))
    assert contents_of_files(site, "patient", view=view) == contents_of_files(by_hand, "patient")
    assert contents_of_files(by_hand, "patient", view=SiteView(HERE)) == contents_of_files(
        by_hand, "patient"
    )
