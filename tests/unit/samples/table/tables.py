"""A small schema with each kind of column, and schemas and rows by chance."""

from functools import partial
from pathlib import Path
from unicodedata import normalize

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.rows import Rows
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
    written_alike,
)

STUDY = Schema(
    columns=(
        NumberColumn(name="weight", low=0, high=300, decimals=1, may_be_missing=True),
        WholeColumn(name="age", low=18, high=120),
        YesNoColumn(name="smoker"),
        CategoryColumn(name="site", categories=("Aachen", "Bonn")),
        OrderedColumn(name="stage", categories=("I", "II", "III")),
        DateColumn(name="born", low="1900-01-01", high="2020-12-31"),
        TimeColumn(name="seen", low="2020-01-01T00:00:00", high="2021-12-31T23:59:59"),
    )
)
HEADER = "weight,age,smoker,site,stage,born,seen"
ROW = "70.5,44,yes,Bonn,II,1980-02-03,2020-05-06T07:08:09"
VALUES = [70.5, 44, 1, 1, 1, 29_252, 10_912_089]


def written(folder: Path, *lines: str, name: str = "site-1.csv") -> Path:
    """A file of some lines."""
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


NAMES = st.text(
    st.characters(categories=["L", "N", "P", "S"], exclude_characters=";"), min_size=1, max_size=8
).map(partial(normalize, "NFC"))
"""Of columns and categories, with commas, quotes and all.

A file of one column whose name has a semicolon could as well have two columns.
"""


def columns(name: str) -> st.SearchStrategy[AnyColumn]:
    """A column of any kind."""
    named = {"name": st.just(name), "may_be_missing": st.booleans()}
    spaced = named | {"spacing": st.sampled_from(["linear", "log"])}
    low, length = st.integers(-(10**6), 10**6), st.integers(1, 10**6)
    # What a file says where a value is missing may be a category as well.
    texts = st.lists(NAMES | st.sampled_from(["NA", "?"]), min_size=2, unique=True)
    categories = texts.filter(lambda chosen: not written_alike(chosen)).map(tuple)
    return st.one_of(
        st.builds(
            lambda low, length, **rest: NumberColumn(low=low, high=low + length, **rest),
            low,
            length,
            decimals=st.integers(0, 6),
            **spaced,
        ),
        st.builds(
            lambda low, length, **rest: WholeColumn(low=low, high=low + length, **rest),
            low,
            length,
            **spaced,
        ),
        st.builds(DateColumn, low=st.just("1899-12-31"), high=st.just("2024-02-29"), **spaced),
        st.builds(
            TimeColumn, low=st.just("1999-12-31T23:59:59"), high=st.just("2024-02-29"), **spaced
        ),
        st.builds(CategoryColumn, categories=categories, **named),
        st.builds(OrderedColumn, categories=categories, **named),
        st.builds(YesNoColumn, no=st.just("0"), yes=st.just("1"), **named),
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A schema of a few columns."""
    names = draw(
        st.lists(NAMES, min_size=1, max_size=5, unique=True).filter(lambda n: not written_alike(n))
    )
    return Schema(columns=tuple(draw(columns(name)) for name in names))


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    """Rows that fit a schema."""
    schema = draw(schemas())
    shape = (draw(st.integers(1, 8)), len(schema.columns))
    shares = draw(arrays.arrays(np.float64, shape, elements=st.floats(0, 1)))
    values = np.empty(shape)
    for place, column in enumerate(schema.columns):
        share = shares[:, place]
        if isinstance(column, ScaledColumn):
            low, high = column.bounds
            values[:, place] = [column.rounded(low + s * (high - low)) for s in share.tolist()]
        else:
            values[:, place] = np.minimum(share * len(column.choices) // 1, len(column.choices) - 1)
        if column.may_be_missing:
            values[share < 0.1, place] = np.nan
    return Rows(schema, values)


def learnt(rows: Rows, target: str | None = None) -> TableKind:
    """A kind that knows the counts of these rows."""
    kind = TableKind(rows.schema, target)
    kind.learn(kind.counts(rows).double())
    return kind
