"""Drafts of schemas: which kind each column gets, what is left out, and what is warned of."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.inspect.schema_draft import Draft, draft_schema
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, csv_of
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    ScaledColumn,
    TimeColumn,
    WholeColumn,
    YesNoColumn,
    problems_of,
    read_schema,
    schema_text,
)
from tests.unit.samples.table.tables import tables

NUM_ROWS = 400
RANDOM = Random(0)


def drafted(folder: Path, given: Mapping[str, Sequence[object]], separator: str = ",") -> Draft:
    """The draft of a file with some columns, and one that is always there."""
    columns = {"other": ["a", "b"] * (NUM_ROWS // 2), **given}
    path = folder / "site-1.csv"
    lines = [separator.join(columns)]
    lines += [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return draft_schema(path)


def of_columns(found: Draft) -> list[str]:
    """Warnings but that of equal rows, which a table of few columns has."""
    return [line for line in found.warnings if "rows equal others" not in line]


def column_of(folder: Path, values: Sequence[object], separator: str = ",") -> AnyColumn:
    found = drafted(folder, {"x": values}, separator)
    assert found.left_out == []
    return found.schema.columns[1]


def some(*values: object) -> list[object]:
    """Rows with these values, in turn."""
    return [values[place % len(values)] for place in range(NUM_ROWS)]


AGES = [RANDOM.randint(18, 93) for _ in range(NUM_ROWS)]
PARTS = [f"{RANDOM.gauss(70, 10):.1f}" for _ in range(NUM_ROWS)]
DAYS = [f"{RANDOM.randint(2019, 2021)}-0{RANDOM.randint(1, 9)}-15" for _ in range(NUM_ROWS)]


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (AGES, WholeColumn(name="x", low=10, high=100)),
        (some(1, 2, 3), WholeColumn(name="x", low=1, high=3, common=(1, 2, 3))),
        (some(*range(1_000, 1_200)), WholeColumn(name="x", low=1000, high=1200)),
        (some("0.5", "-0.25", "7"), NumberColumn(name="x", low=-1, high=7, decimals=2)),
        (some("No", "Yes"), YesNoColumn(name="x", no="No", yes="Yes")),
        (some("True", "False"), YesNoColumn(name="x", no="False", yes="True")),
        (some(0, 1), YesNoColumn(name="x", no="0", yes="1")),
        (some("1.0", "0.0"), YesNoColumn(name="x", no="0", yes="1")),
        (some("nein", "ja"), YesNoColumn(name="x", no="nein", yes="ja")),
        (some("0", "1", "NA"), YesNoColumn(name="x", no="0", yes="1", may_be_missing=True)),
        (some("F", "M"), CategoryColumn(name="x", categories=("F", "M"))),
        (some("01234", "98765"), CategoryColumn(name="x", categories=("01234", "98765"))),
        (DAYS, DateColumn(name="x", low="2019-01-01", high="2021-12-31")),
        (
            ["{2}.{1}.{0}".format(*day.split("-")) for day in DAYS],
            DateColumn(name="x", low="2019-01-01", high="2021-12-31"),
        ),
        (
            [f"{day} 12:0{n % 10}" for n, day in enumerate(DAYS)],
            TimeColumn(
                name="x",
                low="2019-01-01T00:00:00",
                high="2021-12-31T23:59:59",
                form="YYYY-MM-DD hh:mm",
            ),
        ),
    ],
)
def test_kinds_and_bounds(values: Sequence[object], column: AnyColumn, tmp_path: Path) -> None:
    found = column_of(tmp_path, values)
    if isinstance(column, NumberColumn | DateColumn):
        assert isinstance(found, NumberColumn | DateColumn)
        assert (found.low, found.high, found.name) == (column.low, column.high, column.name)
    else:
        assert found == column


def rounded(draw: Callable[[], float], decimals: int = 1) -> list[str]:
    return [f"{draw():.{decimals}f}" for _ in range(NUM_ROWS)]


@pytest.mark.parametrize(
    ("values", "common"),
    [
        (rounded(lambda: RANDOM.gauss(5, 1)), ()),
        (rounded(lambda: RANDOM.expovariate(0.2), 1), ()),
        (rounded(lambda: RANDOM.gauss(40, 9), 0), ()),
        (rounded(lambda: RANDOM.uniform(0, 2)), ()),
        (rounded(lambda: max(0.0, RANDOM.gauss(0, 1)), 2), (0.0,)),
        (rounded(lambda: max(0.0, RANDOM.gauss(1, 10)), 0), (0.0,)),
        (rounded(lambda: min(9.9, RANDOM.gauss(9, 1))), (9.9,)),
    ],
    ids=["bell", "tail", "whole bell", "even", "zeros", "whole zeros", "limit"],
)
def test_common_values_are_no_chance(
    values: list[str], common: tuple[float, ...], tmp_path: Path
) -> None:
    found = column_of(tmp_path, values)
    assert isinstance(found, ScaledColumn)
    assert found.common == common


def test_whole_numbers_that_most_rows_have_are_common(tmp_path: Path) -> None:
    """A site's histogram of a private run hides 0 of 0 to 30 among its neighbours."""
    found = column_of(tmp_path, rounded(lambda: RANDOM.expovariate(0.7) - 0.5, 0))
    assert isinstance(found, ScaledColumn)
    assert set(found.common) >= {0.0, 1.0}


def test_decimals_are_those_that_tell_something(tmp_path: Path) -> None:
    for values, decimals in (
        (PARTS, 1),
        ([f"{RANDOM.random():.15f}" for _ in range(NUM_ROWS)], 7),
        ([f"{RANDOM.random() / 1e4:.15f}" for _ in range(NUM_ROWS)], 11),
        ([f"{RANDOM.random() * 1e9:.15f}" for _ in range(NUM_ROWS)], 6),
    ):
        found = column_of(tmp_path, values)
        assert isinstance(found, NumberColumn)
        assert found.decimals == decimals


def test_decimal_commas(tmp_path: Path) -> None:
    values = [text.replace(".", ",") for text in PARTS]
    assert column_of(tmp_path, values, ";") == column_of(tmp_path, PARTS)
    assert column_of(tmp_path, some("0,0", "1,0"), "\t") == YesNoColumn(name="x", no="0", yes="1")


def test_what_many_rows_share_is_common(tmp_path: Path) -> None:
    values = [0 if place % 4 == 0 else text for place, text in enumerate(PARTS)]
    found = column_of(tmp_path, values)
    assert isinstance(found, NumberColumn)
    assert found.common == (0,)


def test_long_tails(tmp_path: Path) -> None:
    found = column_of(tmp_path, [f"{RANDOM.lognormvariate(8, 2):.2f}" for _ in range(NUM_ROWS)])
    assert isinstance(found, NumberColumn)
    assert found.spacing == "log"
    found = column_of(tmp_path, PARTS)
    assert isinstance(found, NumberColumn)
    assert found.spacing == "linear"


def different(begin: str) -> list[str]:
    return [f"{begin}{number}" for number in range(NUM_ROWS)]


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("patient_id", different("p"), "is called id and has many different values"),
        ("patientID", different("7"), "is called id and has many different values"),
        ("E-mail", some("a@b.c", "d@e.f"), "is called mail, which names a person"),
        ("surname", different("Miller "), "is called surname, which names a person"),
        ("who", different("Miller "), "has another text in nearly every row: names, keys or prose"),
        ("why", some("he said " * 9, "she said " * 9), "has long texts: prose"),
        ("row", range(1, NUM_ROWS + 1), "numbers the rows one after the other, like a key"),
        (
            "account",
            [10**17 + 7 * place for place in range(NUM_ROWS)],
            "has numbers so large that digits are lost, like a key",
        ),
        ("const", some(3), "says '3' in every row"),
        ("empty", some("", "NA"), "has no value in any row"),
        (
            "seen",
            some("1/2/2020", "3/2/2020"),
            "has dates like '1/2/2020', where day and month may be taken for each other; write "
            "2024-12-31",
        ),
        (
            "seen",
            some("2020-01-01T07:00Z", "2020-01-02T07:00Z"),
            "has moments with a time zone; write all in the same, and leave it out",
        ),
        (
            "lab",
            [*PARTS[1:], "high"],
            "has numbers, but in 1 row others, such as 'high' (row 401 of site-1.csv); correct or "
            "empty those",
        ),
        (
            "odd",
            some("a", "b\x1b[2J"),
            "has characters that cannot be printed, in 'b?[2J' (row 3 of site-1.csv); it has "
            "U+001B",
        ),
    ],
)
def test_what_is_left_out(name: str, values: Sequence[object], says: str, tmp_path: Path) -> None:
    found = drafted(tmp_path, {name: values})
    assert found.left_out == [f"{name}: {says}"]
    assert found.schema.names == ["other"]


def test_few_places_with_a_number_are_no_names(tmp_path: Path) -> None:
    found = drafted(tmp_path, {"hospital_id": some("A", "B", "C"), "drug_name": some("x", "y")})
    assert found.schema.names == ["other", "hospital_id", "drug_name"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            [*PARTS[1:], "9000.5"],
            "the upper bound 9000.5 tells of 1 row, far above the others",
        ),
        ([*PARTS[1:], "-9000.5"], "the lower bound -9000.5 tells of 1 row, far below the others"),
        (
            [*some("a", "b")[4:], "c", "d", "e", "f"],
            "categories 'c', 'd', 'e' and 1 more with fewer than 10 rows; join rare ones, here and "
            "in the files, or write all that your protocol has",
        ),
        (some("Bonn", "bonn"), "'Bonn' and 'bonn' may be the same category"),
        (
            some("None", "some", "many"),
            "'None' in 134 rows is taken as missing; add it to the categories if it is one",
        ),
        (
            some(1, 2, 3),
            "few whole numbers; write the kind category where they stand for words",
        ),
        (
            [7 * place for place in range(NUM_ROWS)],
            "every row has a number of its own; leave it out if it is a key",
        ),
    ],
)
def test_warnings(values: Sequence[object], says: str, tmp_path: Path) -> None:
    (told,) = of_columns(drafted(tmp_path, {"x": values}))
    bound = "9000.5" in says
    assert told.startswith(f"x: {says.replace('9000.5', '10000') if bound else says}")


def test_one_warning_for_several_columns(tmp_path: Path) -> None:
    (told,) = of_columns(drafted(tmp_path, {"x": some(1, 2, 3), "y": some(3, 4)}))
    assert told == "x, y: few whole numbers; write the kind category where they stand for words"


def test_files_without_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    for text, says in (
        ("a,b\n", "has no row; give a file with rows below its header"),
        ("a,b\n1,2\n", "no column is left for a schema: a: says '1' in every row; b: says '2' in"),
    ):
        path.write_text(text)
        with pytest.raises(BadInput) as refused:
            draft_schema(path)
        assert str(refused.value).startswith(f"{path}: {says}")
    path.write_text("a,a\n1,2\n")
    with pytest.raises(BadInput, match="column 'a': a name occurs twice, or is none"):
        draft_schema(path)


@given(tables().filter(lambda rows: len(rows) > 1), st.sampled_from([1, 12]))
def test_all_rows_fit_the_draft(rows: Rows, times: int) -> None:
    """Whatever is in a file: its draft is a schema, and its rows without what it lacks fit."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        header, *lines = csv_of(rows).decode().splitlines(keepends=True)
        path.write_text("".join([header, *lines * times]), encoding="utf-8", newline="")
        try:
            found = draft_schema(path)
        except BadInput:
            return
        assert list(problems_of(found.schema)) == []
        Path(folder, "study.json").write_text(schema_text(found.schema), encoding="utf-8")
        assert read_schema(Path(folder, "study.json")) == found.schema
        problems: list[str] = []
        read_rows(path, found.schema, on_problem=lambda problem: problems.append(str(problem)))
        # "NA" as a category of the first schema is a missing value to the draft.
        assert [line for line in problems if "is not in the schema" not in line] == []


@pytest.mark.parametrize(
    ("name", "values", "is_person"),
    [
        ("patient_id", some(*range(40)), True),
        ("Patient", some("a", "b", "c"), True),
        ("MRN", some(*range(1000, 1040)), True),
        ("id", some(*range(100)), True),
        ("studyPatientNo", some(*range(40)), True),
        ("clinic_id", some(1, 2, 3), False),
        ("patient_age", AGES, False),
        ("patient_id", some(1, 2, ""), False),
        ("age", AGES, False),
    ],
)
def test_ids_that_repeat_are_persons(
    name: str, values: Sequence[object], is_person: bool, tmp_path: Path
) -> None:
    found = drafted(tmp_path, {name: values})
    assert (found.schema.person == name) == is_person
    assert (name in found.schema.names) != is_person or name == "patient_id"
    said = [
        line for line in found.warnings if line.startswith(f"{name}: ") and "rows are not" in line
    ]
    assert len(said) == is_person


@pytest.mark.parametrize("day", ["1931-05-06", "2035-05-06"])
def test_a_single_early_or_late_date_is_named(day: str, tmp_path: Path) -> None:
    (told,) = of_columns(drafted(tmp_path, {"x": [day, *DAYS[1:]]}))
    assert told.startswith(
        f"x: the {'first' if day < '2' else 'last'} year, {day[:4]}, tells of 1 row"
    )
    assert not of_columns(drafted(tmp_path, {"x": DAYS}))


def test_equal_rows_are_counted(tmp_path: Path) -> None:
    (told,) = drafted(tmp_path, {"x": [*range(NUM_ROWS - 10), *[5] * 10]}).warnings
    assert told.startswith("9 rows equal others; with differential privacy equal rows count as one")


def test_files_of_a_folder_may_lack_columns_but_spell_them_alike(tmp_path: Path) -> None:
    rows = "".join(f"{20 + n % 40},{'FM'[n % 2]},{n % 7}.5\n" for n in range(60))
    (tmp_path / "a.csv").write_text("age,sex,dose\n" + rows)
    short = "".join(f"{20 + n % 40},{'FM'[n % 2]}\n" for n in range(40))
    (tmp_path / "b.csv").write_text("age,sex\n" + short)
    found = draft_schema(tmp_path)
    assert found.num_rows == 100
    assert [column.may_be_missing for column in found.schema.columns] == [False, False, True]
    assert "dose: is missing in 1 of 2 files (b.csv)" in found.warnings
    (tmp_path / "b.csv").write_text("Age,sex\n" + short)
    with pytest.raises(BadInput, match="columns age and Age differ by case alone; name them alike"):
        draft_schema(tmp_path)
