"""Names and values that a spreadsheet would take for formulas."""

import csv
import re
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.inspect.schema_draft import draft_schema
from mdgan.report.figures.export import write_csv
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, csv_of
from mdgan.samples.table.schema import CategoryColumn, NumberColumn, Schema, problems_of
from mdgan.storage.csv_file import cell
from tests.claims.registry import claim

FORMULAS = (
    *("=1+1", "+49 30", "-a", "-", "@SUM(A1)", "=cmd|' /C calc'!A0", "-1+cmd"),
    *("＝1", "＋a", "－a", "＠a", "﹦1", " =1", "\xa0=1", "'=1", "''=1", '"=1', "”=1", "+1,5"),
)
UNPRINTABLE = ("\t=1", "\r=1", "\n=1", "\tx", "\rx", "'\tx", "\ufeff=1", "\u200b=1", "\0=1")
NUMBERS = ("-1.5", "-1", "+1", "-1e-07", "0", "-5%")


def first(text: str) -> str:
    """What a spreadsheet sees first that ignores spaces and such, but not an apostrophe."""
    return re.sub(r"^[\s\0\ufeff\u200b\"”]+", "", normalize("NFKC", text))[:1]


@pytest.mark.parametrize("text", [*FORMULAS, *UNPRINTABLE])
def test_a_formula_is_written_as_text_in_figures(text: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "losses.csv", [[text, f"a;{text}"], [*NUMBERS]])
    with (tmp_path / "losses.csv").open(newline="", encoding="utf-8") as file:
        (alone, behind), numbers = csv.reader(file)
    assert alone.startswith("'")
    assert alone.lstrip("'") == text.lstrip("'") or "'=1" in alone
    # Where `;` separates columns, what follows one is its own cell.
    assert all(first(piece) not in "=+-@" for piece in re.split("[;\t\r\n]", behind)[1:] if piece)
    assert tuple(numbers) == NUMBERS


@claim("no-formulas", "in CSV files of mdgan an apostrophe stands before what could be one")
def test_samples_of_a_table_are_text_and_are_read_again(tmp_path: Path) -> None:
    schema = Schema(
        columns=(
            CategoryColumn(name="=site", categories=(*FORMULAS[:11], "plain", "-1")),
            NumberColumn(name="@x", low=-2, high=2),
        )
    )
    rows = Rows(schema, np.array([[code, -1.5] for code in range(13)]))
    path = tmp_path / "synthetic.csv"
    path.write_bytes(csv_of(rows))
    header, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
    assert header == ["'=site", "'@x"]
    assert [line[0] for line in lines] == [*(f"'{t}" for t in FORMULAS[:11]), "plain", "-1"]
    assert {line[1] for line in lines} == {"-1.5"}
    np.testing.assert_array_equal(read_rows(path, schema).values, rows.values)


def test_the_draft_of_a_schema_names_them(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("=name,sex,age\n" + "@a,f,1\n-b,m,2\n" * 20)
    warned = draft_schema(path).warnings
    assert any(
        line.startswith("=name: a spreadsheet could take '=name', '-b', '@a' for a formula")
        for line in warned
    ), warned
    assert not any(line.startswith(("sex: a spread", "age: a spread")) for line in warned)


def test_two_texts_that_would_be_written_alike_are_refused(tmp_path: Path) -> None:
    both = CategoryColumn(name="a", categories=("=x", "'=x"))
    (problem,) = problems_of(Schema(columns=(both,)))
    assert problem == "column a: categories =x and '=x: would be written alike as CSV; rename one"
    names = [NumberColumn(name=name, low=0, high=1) for name in ("=x", "'=x")]
    (problem,) = problems_of(Schema(columns=tuple(names)))
    assert problem == "columns =x and '=x: would be written alike as CSV; rename one"
    path = tmp_path / "site.csv"
    path.write_text("a\n" + "=x\n'=x\n" * 20)
    with pytest.raises(BadInput, match="a: has =x and '=x, which would be written alike as CSV"):
        draft_schema(path)


PIECES = st.sampled_from(["'", "''", "=", "-", "1", "x", ";", "\t", "\r", " ", '"', "＝", "\ufeff"])


@given(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=8))
def test_every_text_can_be_told_from_what_is_written(text: str) -> None:
    """What `cell` adds can be taken away: so texts that differ are written differently."""

    def taken_away(written: str, whole: bool) -> str:
        if not whole:
            return written[1:] if written[:1] == "'" and cell(written[1:]) == written else written
        pieces = re.split("([;\t\r\n])", written)
        bare = "".join(taken_away(piece, False) for piece in pieces)
        return next(t for t in (bare, bare[1:]) if cell(t) == written)

    assert taken_away(cell(text), True) == text
