"""Texts of files: one spelling of é, and invisible signs are named with their place."""

from pathlib import Path
from unicodedata import normalize

import pytest

from mdgan.errors import BadInput
from mdgan.inspect.schema_draft import draft_schema
from mdgan.samples.table.identity import contents_of_files
from mdgan.samples.table.kind import RowCondition, TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import CategoryColumn, Schema, read_schema, schema_text
from tests.unit.samples.table.tables import written

NAME, TEXTS = "Größe é", ("café", "Zoë")


def decomposed(text: str) -> str:
    return normalize("NFD", text)


def schema() -> Schema:
    return Schema(columns=(CategoryColumn(name=NAME, categories=TEXTS),) * 1)


def test_composed_and_decomposed_are_one(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(decomposed(schema_text(schema())), encoding="utf-8")
    same = read_schema(path)
    assert same.sha256 == schema().sha256
    for spell in (str, decomposed):
        file = written(tmp_path, spell(NAME), *map(spell, TEXTS))
        assert read_rows(file, same).values.tolist() == [[0.0], [1.0]]
        where = RowCondition(same, f"{spell(NAME)}={spell('Zoë')}")
        assert where.holds(read_rows(file, same)).tolist() == [False, True]
    wider = Schema(columns=(*same.columns, CategoryColumn(name="b", categories=("x", "y"))))
    assert TableKind(wider, decomposed(NAME)).target == 0
    mixed = written(
        tmp_path, f"{decomposed(NAME)},n", *["café,a", f"{decomposed('café')},b", "b,b"]
    )
    assert draft_schema(mixed).schema.columns[0] == CategoryColumn(
        name=NAME, categories=("b", "café")
    )


def test_accounts_know_rows_by_composed_names(tmp_path: Path) -> None:
    results = [
        contents_of_files(written(tmp_path, f"{spell(NAME)},n", f"{spell('Zoë')},1"), "")
        for spell in (str, decomposed)
    ]
    assert results[0] == results[1]
    row = "grösse é=Zoë\x1fn=1".encode()
    assert results[0] == [(row, row)]


def test_parquet_is_composed(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({decomposed(NAME): [decomposed(text) for text in TEXTS]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet", schema()).values.tolist() == [[0.0], [1.0]]
    parquet.write_table(pa.table({NAME: [t.encode() for t in TEXTS]}), tmp_path / "b.parquet")
    assert read_rows(tmp_path / "b.parquet", schema()).values.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("sign", "named"),
    [
        ("\u200b", "U+200B ZERO WIDTH SPACE"),
        ("\u00ad", "U+00AD SOFT HYPHEN"),
        ("\ufeff", "U+FEFF ZERO WIDTH NO-BREAK SPACE"),
        ("\x1b", "U+001B"),
    ],
)
def test_signs_that_nobody_sees(sign: str, named: str, tmp_path: Path) -> None:
    path = written(tmp_path, NAME, "café", f"Zo{sign}ë")
    with pytest.raises(BadInput, match=f"row 3, column {NAME}: .*; it has U\\{named[1:]}"):
        read_rows(path, schema())
    path = written(tmp_path, f"a,b{sign}b", *["1,2", "2,1"] * 9)
    with pytest.raises(BadInput, match=f"row 1, column b.b: .*; it has U\\{named[1:]}"):
        draft_schema(path)
    path = written(tmp_path, "a,b", *["1,x", f"2,x{sign}y"] * 9)
    assert draft_schema(path).left_out[0].endswith(f"(row 3 of {path.name}); it has {named}")


@pytest.mark.parametrize(
    "other", ['"""yes"""', "yes<br>", "yes&nbsp;", "YES", "yes ", "ｙｅｓ", "“yes”", "yes<br/>"]
)
def test_spellings_of_one_category(other: str, tmp_path: Path) -> None:
    path = written(tmp_path, "a,b", *["no,1", "yes,2", f"{other},3", "maybe,4"] * 20)
    lines = draft_schema(path).warnings
    is_named = any("may be the same category" in line for line in lines)
    assert is_named == (other != "yes ")  # spaces at an end say nothing
    marks = any("in it; take it out if it is not meant" in line for line in lines)
    assert marks == any(sign in other for sign in '"<&“')


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content, says in (
        (b"a,b\n1,\x002\n", "has NUL bytes"),
        ("a,b\n1,2\n".encode("utf-16-le"), "has NUL bytes"),
        (b"a;b\n1;x\n2;caf\xe9\n", "first in row 3, column b"),
        (b"a;caf\xe9\n1;x\n", "first in row 1, column caf"),
    ):
        path.write_bytes(content)
        for read in (draft_schema, lambda at: read_rows(at, schema())):
            with pytest.raises(BadInput, match=says):
                read(path)
