"""Merges the drafts of several sites into one schema."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mdgan.errors import BadInput
from mdgan.inspect.schema_merge import merge_schemas
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, csv_of
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    OrderedColumn,
    ScaledColumn,
    Schema,
    TimeColumn,
    WholeColumn,
    YesNoColumn,
    schema_text,
)
from mdgan.samples.table.texts import Problem
from tests.unit.samples.table.tables import STUDY, columns

AGE = WholeColumn(name="x", low=10, high=90, common=(18.0,))
SEX = CategoryColumn(name="x", categories=("F", "M"))
ILL = YesNoColumn(name="x")
DAY = DateColumn(name="x", low="2020-01-01", high="2020-12-31", common=(1.0, 30.0))


def together(folder: Path, *schemas: Schema) -> tuple[Schema, list[str]]:
    paths = [folder / f"{'abc'[place]}.json" for place in range(len(schemas))]
    for path, schema in zip(paths, schemas, strict=True):
        path.write_text(schema_text(schema), encoding="utf-8")
    merged, told = merge_schemas(paths)
    return merged, [line.replace(f"{folder}/", "") for line in told]


def column_of(folder: Path, one: AnyColumn, other: AnyColumn) -> tuple[AnyColumn, list[str]]:
    merged, told = together(folder, Schema(columns=(one,)), Schema(columns=(other,)))
    return merged.columns[0], told


@pytest.mark.parametrize(
    ("one", "other", "expected", "says"),
    [
        (
            AGE,
            WholeColumn(name="x", low=0, high=80, may_be_missing=True, common=(0.0, 18.0)),
            WholeColumn(name="x", low=0, high=90, may_be_missing=True, common=(0.0, 18.0)),
            "x: bounds 10 to 90 in a.json, 0 to 80 in b.json: 0 to 90",
        ),
        (
            AGE,
            NumberColumn(name="x", low=0.5, high=80, decimals=1),
            NumberColumn(name="x", low=0.5, high=90, decimals=1, common=(18.0,)),
            "x: whole in a.json and number in b.json: number",
        ),
        (
            NumberColumn(name="x", low=0, high=1, decimals=2, spacing="log"),
            NumberColumn(name="x", low=0, high=1, decimals=4),
            NumberColumn(name="x", low=0, high=1, decimals=4, spacing="log"),
            "x: decimals 2 in a.json, 4 in b.json: 4",
        ),
        (
            SEX,
            CategoryColumn(name="x", categories=("d", "F"), other="d"),
            CategoryColumn(name="x", categories=("F", "M", "d"), other="d"),
            "x: categories F, M in a.json, d, F in b.json: F, M, d",
        ),
        (
            ILL,
            CategoryColumn(name="x", categories=("yes", "unclear")),
            CategoryColumn(name="x", categories=("no", "yes", "unclear")),
            "x: yes_no in a.json and category in b.json: category",
        ),
        (
            OrderedColumn(name="x", categories=("I", "III")),
            OrderedColumn(name="x", categories=("I", "II", "III")),
            OrderedColumn(name="x", categories=("I", "II", "III")),
            "x: categories I, III in a.json, I, II, III in b.json: I, II, III",
        ),
        (
            DAY,
            DateColumn(name="x", low="2019-12-31", high="2020-06-30", common=(2.0, 5.0)),
            DateColumn(name="x", low="2019-12-31", high="2020-12-31", common=(2.0, 5.0, 31.0)),
            "x: bounds 2020-01-01 to 2020-12-31 in a.json, 2019-12-31 to 2020-06-30 in b.json: "
            "2019-12-31 to 2020-12-31",
        ),
        (
            replace(DAY, form="MM/DD/YYYY"),
            replace(DAY, form="DD.MM.YYYY"),
            replace(DAY, form="MM/DD/YYYY"),
            "x: form MM/DD/YYYY in a.json, DD.MM.YYYY in b.json: MM/DD/YYYY",
        ),
        (
            replace(DAY, form="YYYYMMDD"),
            replace(DAY, form="DD.MM.YYYY"),
            DAY,
            "x: form YYYYMMDD in a.json, DD.MM.YYYY in b.json: nothing",
        ),
        (
            WholeColumn(name="x", low=0, high=9, may_be_missing=True, missing=("99",)),
            WholeColumn(name="x", low=0, high=9, may_be_missing=True, missing=("-1",)),
            WholeColumn(name="x", low=0, high=9, may_be_missing=True, missing=("99", "-1")),
            "x: missing 99 in a.json, -1 in b.json: 99, -1",
        ),
        (
            WholeColumn(name="x", low=0, high=89, above=89, unit="kg"),
            WholeColumn(name="x", low=0, high=70),
            WholeColumn(name="x", low=0, high=89, above=89, unit="kg"),
            "x: above 89 in a.json, nothing in b.json: 89",
        ),
    ],
)
def test_columns_are_widened_and_each_thing_is_said(
    one: AnyColumn, other: AnyColumn, expected: AnyColumn, says: str, tmp_path: Path
) -> None:
    column, told = column_of(tmp_path, one, other)
    assert column == expected
    assert says in told
    assert column_of(tmp_path, one, one) == (one, [])


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (AGE, SEX, "column x: is whole in a.json, and category in b.json; agree on one kind"),
        (DAY, AGE, "is date in a.json, and whole in b.json"),
        (
            replace(DAY, form="MM/DD/YYYY"),
            replace(DAY, form="DD/MM/YYYY"),
            '"form" is MM/DD/YYYY in one, and DD/MM/YYYY in the other',
        ),
        (DAY, replace(DAY, form="YYYY-MM", common=()), '"form" is nothing in one, and YYYY-MM'),
        (
            DAY,
            TimeColumn(name="x", low="2020-01-01T00:00:00", high="2020-12-31T00:00:00"),
            "is date in a.json, and time in b.json",
        ),
        (SEX, OrderedColumn(name="x", categories=("F", "M")), "is category in a.json, and ordered"),
        (
            ILL,
            YesNoColumn(name="x", no="nein", yes="ja"),
            '"no" is no in one, and nein in the other',
        ),
        (
            OrderedColumn(name="x", categories=("I", "II")),
            OrderedColumn(name="x", categories=("II", "I")),
            "the order is I < II in one, II < I in the other",
        ),
        (
            OrderedColumn(name="x", categories=("I", "II")),
            OrderedColumn(name="x", categories=("I", "III")),
            "write the whole order in one",
        ),
        (
            replace(AGE, may_be_missing=True, missing=("50", "-1")),
            AGE,
            "'50' is missing in a.json, and a value in b.json",
        ),
        (
            SEX,
            replace(SEX, categories=("F", "X"), may_be_missing=True, missing=("M",)),
            "'M' is missing in b.json, and a value in a.json",
        ),
        (replace(AGE, above=90), replace(AGE, high=120), "go beyond its end >90"),
        (replace(AGE, unit="lb"), replace(AGE, unit="kg"), '"unit" is lb in one, and kg in the'),
        (
            replace(SEX, other="F"),
            replace(SEX, other="M"),
            '"other" is F in one, and M in the other',
        ),
    ],
)
def test_what_contradicts_is_refused_with_both_files(
    one: AnyColumn, other: AnyColumn, says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refused:
        column_of(tmp_path, one, other)
    message = str(refused.value).replace(f"{tmp_path}/", "")
    assert says in message
    assert message.startswith("column x")
    assert "a.json" in message
    assert "b.json" in message
    assert "\n" not in message


def test_columns_of_one_site_may_be_missing_and_those_of_the_first_stand_first(
    tmp_path: Path,
) -> None:
    y, z = (replace(AGE, name=name) for name in "yz")
    merged, told = together(
        tmp_path,
        Schema(columns=(z, AGE), ignore=("mrn",)),
        Schema(columns=(AGE, y), ignore=("name", "mrn")),
        Schema(columns=(y,)),
    )
    assert [column.name for column in merged.columns] == ["z", "x", "y"]
    assert all(column.may_be_missing for column in merged.columns)
    assert merged.ignore == ("mrn", "name")
    assert "z: only in a.json, so it may be missing" in told
    assert "x: only in a.json, b.json, so it may be missing" in told


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"person": "pid"}, "nothing is the person in one, pid in the other; agree on it"),
        ({"ignore": ("x",), "columns": (SEX, replace(AGE, name="y"))[1:]}, "column x: "),
    ],
)
def test_schemas_that_do_not_go_together(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    one = Schema(columns=(AGE,))
    for pair in ((one, replace(one, **changes)), (replace(one, **changes), one)):
        with pytest.raises(BadInput) as refused:
            together(tmp_path, *pair)
        assert "a.json" in str(refused.value)
        assert "b.json" in str(refused.value)
        if pair[0] is one:
            assert says in str(refused.value)


def test_rows_are_independent_only_if_all_sites_say_so(tmp_path: Path) -> None:
    independent = replace(STUDY, rows_are_independent=True)
    assert together(tmp_path, independent, independent)[0] == independent
    merged, told = together(tmp_path, independent, STUDY)
    assert merged == STUDY
    assert told == ['"rows_are_independent": not in both, so left out']


def test_common_values_stay_few(tmp_path: Path) -> None:
    one, other = (
        WholeColumn(name="x", low=0, high=99, common=tuple(map(float, range(n, n + 20))))
        for n in (0, 15)
    )
    column, told = column_of(tmp_path, one, other)
    assert isinstance(column, WholeColumn)
    assert len(column.common) == 20
    assert {*map(float, range(15, 20))} < {*column.common}
    assert any(line.startswith("x: common") for line in told)


def unordered(column: AnyColumn) -> str:
    """A column whatever the order of its categories."""
    if column.kind == "category":
        assert isinstance(column, CategoryColumn)
        column = replace(column, categories=tuple(sorted(column.categories)))
    return repr(column)


def rows_of(column: AnyColumn, shares: list[float]) -> Rows:
    if isinstance(column, ScaledColumn):
        low, high = column.bounds
        values = [column.rounded(low + share * (high - low)) for share in shares]
    else:
        values = [float(int(share * 0.999 * len(column.choices))) for share in shares]
    return Rows(Schema(columns=(column,)), np.array(values)[:, None])


COLUMN = columns("x")


@settings(max_examples=100, deadline=None)
@given(COLUMN, COLUMN, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_all_files_that_fit_one_schema_fit_the_merged_one(
    tmp_path_factory: pytest.TempPathFactory, one: AnyColumn, other: AnyColumn, shares: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    try:
        merged, _ = column_of(folder, one, other)
    except BadInput:
        with pytest.raises(BadInput):
            column_of(folder, other, one)
        return
    assert unordered(column_of(folder, other, one)[0]) == unordered(merged)
    assert column_of(folder, merged, merged) == (merged, [])
    assert unordered(column_of(folder, merged, other)[0]) == unordered(merged)
    for column in (one, other):
        rows = rows_of(column, shares)
        (folder / "s.csv").write_bytes(csv_of(rows))
        problems: list[Problem] = []
        schema = Schema(columns=(merged,))
        assert len(read_rows(folder / "s.csv", schema, on_problem=problems.append)) == len(rows)
        assert problems == []
