"""Drafts of columns with numbers, however files write them, and of files without a header."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pandas
import pytest

from mdgan.errors import BadInput
from mdgan.inspect.schema_draft import Draft, draft_schema
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    NumberColumn,
    OrderedColumn,
    WholeColumn,
)

RANDOM = Random(0)
NUM_ROWS = 400


def drafted(folder: Path, texts: Sequence[object], between: str = ";", name: str = "x") -> Draft:
    path = folder / "site-1.csv"
    quoted = [f'"{text}"' if between in str(text) else str(text) for text in texts]
    lines = [f"{name}{between}sex", *(f"{t}{between}{'FM'[n % 2]}" for n, t in enumerate(quoted))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return draft_schema(path)


def column_of(folder: Path, texts: Sequence[object], between: str = ";") -> AnyColumn:
    """The drafted column, whose schema the file fits."""
    found = drafted(folder, texts, between)
    assert found.left_out == []
    read_rows(folder / "site-1.csv", found.schema)
    return found.schema.columns[0]


def told_of(found: Draft) -> list[str]:
    return [line for line in found.warnings if line.startswith("x: ")]


COSTS = [RANDOM.randint(300, 9999) for _ in range(NUM_ROWS)]
PARTS = [f"{RANDOM.gauss(70, 10):.1f}" for _ in range(NUM_ROWS)]


@pytest.mark.parametrize(
    ("texts", "between", "says"),
    [
        ([f"{c:,}.50" for c in COSTS], ";", "commas between thousands"),
        ([f"{c:,}" for c in COSTS], ",", "commas between thousands"),
        ([f"{c:,}" for c in [*COSTS[2:], 10**6, 10**7]], ";", "commas between thousands"),
        ([f"{c:,}".replace(",", " ") for c in COSTS], ";", "spaces between thousands"),
        ([f"{c:,}".replace(",", "\u202f") for c in COSTS], ",", "spaces between thousands"),
        ([f"{c:,}".replace(",", "'") for c in COSTS], ",", "apostrophes between thousands"),
        ([f"{c} mg" for c in COSTS], ",", "the unit mg; generated rows have the number alone"),
        ([f"{p}%" for p in PARTS], ",", "the unit %; generated rows have the number alone"),
        ([f"€ {p}" for p in PARTS], ",", "the unit €; generated rows have the number alone"),
        ([p.replace(".", ",") for p in PARTS], ";", "decimal commas"),
        ([f"{c + 1000:,}.{c % 90 + 10}" for c in COSTS], ";", "commas between thousands"),
        ([f"{c * 1000:,}" for c in COSTS if c > 1000], ",", "commas between thousands"),
        ([f"{c + 1000:,}.{c % 90 + 10}".replace(",", "'") for c in COSTS], ",", "apostrophes"),
    ],
)
def test_writings_are_said(texts: Sequence[str], between: str, says: str, tmp_path: Path) -> None:
    column = column_of(tmp_path, texts, between)
    assert isinstance(column, NumberColumn | WholeColumn)
    told = told_of(drafted(tmp_path, texts, between))
    assert any(line.startswith(f"x: numbers are read with {says}") for line in told)


@pytest.mark.parametrize(
    ("texts", "between"),
    [
        ([f"{c:,}" for c in COSTS], ";"),
        ([f"{c:,}" for c in COSTS], "\t"),
        ([f"{c:,}".replace(",", ".") for c in COSTS], ","),
        ([f"{c:,}".replace(",", ".") for c in COSTS], ";"),
        ([f"{c + 1000:,}" for c in COSTS], ";"),
        ([f"{c + 1000:,}".replace(",", ".") for c in COSTS], ";"),
        ([f"{c + 1000:,}".replace(",", ".") for c in COSTS], "\t"),
        ([f"{c + 1000:,} kg".replace(",", ".") for c in COSTS], ";"),
    ],
)
def test_what_may_be_two_numbers_is_asked(
    texts: Sequence[str], between: str, tmp_path: Path
) -> None:
    (said,) = drafted(tmp_path, texts, between).left_out
    assert said.startswith("x: site-1.csv, row ")
    assert " may be " in said
    assert '"decimal": "' in said


def test_decimals_of_programs_are_no_thousands(tmp_path: Path) -> None:
    column = column_of(tmp_path, [f"{c / 1000:.3f}" for c in COSTS], ",")
    assert isinstance(column, NumberColumn)
    assert (column.low, column.high, column.decimals) == (0, 10, 3)


@pytest.mark.parametrize(
    "texts",
    [
        [f"{c % 90 + 1}E{c % 9}" for c in COSTS],
        [f"{c % 9}{'ABE'[c % 3]}{c % 7}" for c in COSTS],
        [f"0{c % 20}" for c in COSTS],
        [f'="{c % 20:05}"' for c in COSTS],
        [f"{c % 20 + 1}A" for c in COSTS],
        [f"1_00{c % 9}" for c in COSTS],
    ],
)
def test_codes_stay_categories(texts: list[str], tmp_path: Path) -> None:
    column = column_of(tmp_path, texts[:360] + texts[:40])
    assert isinstance(column, CategoryColumn)
    assert {t.removeprefix('="').removesuffix('"') for t in texts[:360]} == {*column.categories}


def test_numbers_of_telephones_are_keys(tmp_path: Path) -> None:
    texts = [f"79{c % 9} {c % 900 + 100} {c % 89 + 10}1" for c in COSTS]
    (said,) = drafted(tmp_path, texts).left_out
    assert "names, keys or prose" in said


@pytest.mark.parametrize(
    "texts",
    [
        [p if n % 2 else p.replace(".", ",") for n, p in enumerate(PARTS)],
        [f"{p} {['mg', 'g'][n % 2]}" for n, p in enumerate(PARTS)],
        [f"{p}%" if n % 2 else f"0.{n}" for n, p in enumerate(PARTS)],
        [f"{c + 1000:,}.50" if n % 2 else f"{c},5" for n, c in enumerate(COSTS)],
        [f"{p} {['kg', 'lb', 'g'][n % 3]}" for n, p in enumerate(PARTS)],
    ],
)
def test_no_two_ways_of_writing_are_mixed(texts: list[str], tmp_path: Path) -> None:
    (said,) = drafted(tmp_path, texts).left_out
    assert "numbers" in said
    assert "others, such as '" in said
    assert " of site-1.csv)" in said


@pytest.mark.parametrize(
    ("zero", "between"), [("\u0660", ""), ("\u0966", ""), ("\uff10", ""), ("\u0660", "\u066b")]
)
def test_digits_of_another_script(zero: str, between: str, tmp_path: Path) -> None:
    texts = (f"{c % 90}" + (f".{c % 7}" if between else "") for c in COSTS)
    script = {ord("0") + n: ord(zero) + n for n in range(10)} | {ord("."): between}
    (said,) = drafted(tmp_path, [text.translate(script) for text in texts]).left_out
    assert "has digits of another script, such as " in said
    assert "(row 2 of site-1.csv); write 0 to 9" in said


@pytest.mark.parametrize("form", ["{}:{:02}", "{}/{}", "{}-{:02}", "({},{})", "{}:{:02}:00"])
def test_digits_and_signs_that_are_no_numbers(form: str, tmp_path: Path) -> None:
    (said,) = drafted(tmp_path, [form.format(c % 83, c % 59) for c in COSTS]).left_out
    assert f"; '{form.format(COSTS[0] % 83, COSTS[0] % 59)}' (row 2 of site-1.csv) is no " in said


@pytest.mark.parametrize(
    ("end", "keys"),
    [
        (">89", {"above": 89, "high": 89}),
        ("90+", {"above": 89, "high": 89}),
        ("≥90", {"above": 89, "high": 89}),
        ("<60", {"below": 60, "low": 60}),
        ("<=59", {"below": 60, "low": 60}),
    ],
)
def test_ends_of_a_scale(end: str, keys: dict[str, int], tmp_path: Path) -> None:
    texts = [end if n % 7 == 0 else str(60 + c % 30) for n, c in enumerate(COSTS)]
    column = column_of(tmp_path, texts)
    assert isinstance(column, WholeColumn)
    assert {key: getattr(column, key) for key in keys} == keys
    schema = draft_schema(tmp_path / "site-1.csv").schema
    other = tmp_path / "site-2.csv"
    other.write_text(f"x;sex\n67;F\n{end};M\n85;F\n")
    assert len(read_rows(other, schema)) == 3


def test_ends_with_decimals_and_both_sides(tmp_path: Path) -> None:
    texts = [
        "<0.5" if c % 9 == 0 else ">200" if c % 9 == 1 else p
        for c, p in zip(COSTS, PARTS, strict=True)
    ]
    column = column_of(tmp_path, texts, ",")
    assert isinstance(column, NumberColumn)
    assert (column.low, column.high, column.below, column.above) == (0.5, 200, 0.5, 200)


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (["<0.5", "<1"], "has several ends of its scale, <0.5, <1; write one"),
        ([">50"], "beyond it"),
    ],
)
def test_ends_that_contradict(ends: list[str], says: str, tmp_path: Path) -> None:
    (said,) = drafted(tmp_path, [*PARTS, *ends * 12], ",").left_out
    assert says in said


@pytest.mark.parametrize(
    ("codes", "rest", "said"),
    [
        (["-999"] * 48 + ["999"] * 12, [f"{18 + c % 22}.5" for c in COSTS], ["-999", "999"]),
        (["-9"] * 3, [c % 4 for c in COSTS], ["-9"]),
        (["99"] * 50, [c % 5 + 1 for c in COSTS], ["99"]),
        (["9"] * 50, [c % 5 + 1 for c in COSTS], ["9"]),
        (["-999999"], COSTS, ["-999999"]),
        (["999.9"] * 20, PARTS, ["999.9"]),
        (["-1000"] * 60, PARTS, ["-1000"]),
    ],
)
def test_codes_of_missing_values_are_asked_about(
    codes: list[str], rest: Sequence[object], said: list[str], tmp_path: Path
) -> None:
    told = told_of(drafted(tmp_path, [*codes, *rest]))
    (line,) = [line for line in told if '"missing"' in line]
    listed = ", ".join(f'"{text}"' for text in said)
    assert f'write "missing": [{listed}] and "may_be_missing": true' in line
    count = len(codes) if len(said) == 1 else 48
    assert f"x: {said[0]} in {count} row" in line


@pytest.mark.parametrize(
    "texts",
    [
        COSTS,
        PARTS,
        [c % 10 for c in COSTS],
        [c % 99 + 1 for c in COSTS],
        [f"{RANDOM.lognormvariate(8, 2):.2f}" for _ in range(NUM_ROWS)],
        [1, 2] * 200,
    ],
)
def test_numbers_like_others_are_no_codes(texts: Sequence[object], tmp_path: Path) -> None:
    assert not [line for line in drafted(tmp_path, texts).warnings if '"missing"' in line]


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([-1, 1], OrderedColumn(name="x", categories=("-1", "1"))),
        ([0, 2, 5], OrderedColumn(name="x", categories=("0", "2", "5"))),
        ([10, 20, 30, 40], OrderedColumn(name="x", categories=("10", "20", "30", "40"))),
        ([1, 2, 3], WholeColumn(name="x", low=1, high=3, common=(1, 2, 3))),
    ],
)
def test_a_target_has_the_classes_that_occur(
    values: list[int], column: AnyColumn, tmp_path: Path
) -> None:
    texts = [values[0] if n % 10 else values[1 + n // 10 % (len(values) - 1)] for n in range(1200)]
    assert column_of(tmp_path, texts) == column
    found = draft_schema(tmp_path / "site-1.csv").schema
    assert TableKind(found, "x").class_names == tuple(map(str, values))
    (tmp_path / "floats.csv").write_text(f"x;sex\n{values[0]}.0;F\n")
    assert len(read_rows(tmp_path / "floats.csv", found)) == 1


def test_counts_with_a_gap_in_the_tail_stay_numbers(tmp_path: Path) -> None:
    column = column_of(tmp_path, [0] * 200 + [1] * 90 + [2] * 40 + [3] * 12 + [5] * 2)
    assert isinstance(column, WholeColumn)


@pytest.mark.parametrize(
    ("texts", "left_out", "says"),
    [
        (
            [p if n % 10 > 3 else "high" for n, p in enumerate(PARTS)],
            True,
            "has numbers, but in 160 rows others, such as 'high' (row 2 of site-1.csv)",
        ),
        (
            [n % 4 if n % 10 else "unknown" for n in range(NUM_ROWS)],
            False,
            "besides numbers in 360 rows there are 'unknown' (row 2 of site-1.csv)",
        ),
        (
            [f"{p} mg" if n % 10 else f"{p} g" for n, p in enumerate(PARTS)],
            True,
            "others, such as '",
        ),
    ],
)
def test_what_is_mostly_numbers_is_named(
    texts: Sequence[object], left_out: bool, says: str, tmp_path: Path
) -> None:
    found = drafted(tmp_path, texts)
    (line,) = found.left_out if left_out else [t for t in told_of(found) if "besides" in t]
    assert says in line


def test_two_files_may_write_numbers_differently(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    folder.mkdir()
    (folder / "a.csv").write_text("x;sex\n" + "".join(f"{p};F\n" for p in PARTS))
    commas = "".join(f"{p.replace('.', ',')};M\n" for p in PARTS)
    (folder / "b.csv").write_text("x;sex\n" + commas)
    found = draft_schema(folder)
    assert isinstance(found.schema.columns[0], NumberColumn)
    assert len(read_rows(folder, found.schema)) == 2 * NUM_ROWS


# Headers.

PATIENTS = [
    f"{RANDOM.randint(20, 90)},{RANDOM.choice('FM')},{RANDOM.randint(90, 180)},"
    f"{RANDOM.choice(['yes', 'no'])}"
    for _ in range(300)
]


@pytest.mark.parametrize(
    "lines",
    [
        PATIENTS,
        [line.replace(",", "\t") for line in PATIENTS],
        [line.replace(",", ";") for line in PATIENTS],
        [f"P{n:04},{line},2020-0{n % 9 + 1}-11" for n, line in enumerate(PATIENTS)],
        [f"{n % 50 / 10},{n % 37 / 10}" for n in range(200, 500)],
        [f"2020-0{n % 9 + 1}-11,{'ab'[n % 2]}" for n in range(300)],
        [f"{n % 50 + 1},5;{n % 37},2".replace(",5", ",5") for n in range(200, 500)],
        [f"NA,{line}" if n % 7 == 0 else f"{n % 9},{line}" for n, line in enumerate(PATIENTS)],
    ],
)
def test_a_file_without_a_header_is_refused(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput) as refused:
        draft_schema(path)
    assert "looks like the rows below it; let the first line name the columns; or --no-header" in (
        str(refused.value)
    )
    found = draft_schema(path, no_header=True)
    assert all(name.startswith("column_") for name in found.schema.names)
    assert found.num_rows == len(lines)
    if not found.left_out:
        assert len(read_rows(path, found.schema)) == len(lines)


@pytest.mark.parametrize(
    "header", ["age,sex,bp,ill", "age,sex,2020,ill", "age,F,bp,ill", "x1,x2,x3,x4", "0,1,2,3"]
)
def test_a_header_is_one(header: str, tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("\n".join([header, *PATIENTS]) + "\n")
    assert draft_schema(path).schema.names == header.split(",")


def test_names_that_occur_twice_may_be_values(tmp_path: Path) -> None:
    path = tmp_path / "site-1.csv"
    path.write_text("1,1,0\n1,0,0\n0,1,1\n")
    with pytest.raises(BadInput, match=r"a name occurs twice, or is none; .*--no-header"):
        draft_schema(path)


def test_parquet_names_its_columns(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"1.5": [float(p) for p in PARTS], "2.5": [c / 2 for c in COSTS]})
    frame.to_parquet(tmp_path / "a.parquet")
    assert draft_schema(tmp_path / "a.parquet").schema.names == ["1.5", "2.5"]


def test_empty_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "blank.csv"
    path.write_text("age,sex\n" + "50,F\n61,M\n72,F\n" * 100 + ",\n" * 100)
    found = draft_schema(path)
    assert found.num_rows == 300
    assert f"{path}: 100 empty rows are skipped" in found.warnings
    assert not any(column.may_be_missing for column in found.schema.columns)


@pytest.mark.parametrize("form", ["{} mg", "{}%", "{},000", "$ {}"])
def test_few_numbers_of_another_writing_stay_numbers(form: str, tmp_path: Path) -> None:
    column = column_of(tmp_path, [form.format((1, 5, 50)[n % 3]) for n in range(60)], ",")
    assert isinstance(column, WholeColumn)


def test_numbers_among_categories_are_read_as_they_are_drafted(tmp_path: Path) -> None:
    column = column_of(tmp_path, ["6,0", "high", "7,5", "low", "high"] * 20, ";")
    assert isinstance(column, CategoryColumn)
