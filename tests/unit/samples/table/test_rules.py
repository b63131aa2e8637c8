"""Rules between columns: which are read and refused, and that generated rows obey them."""

import re
from datetime import date

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.rules import Rules
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    DateColumn,
    Follows,
    NumberColumn,
    OrderedColumn,
    Schema,
    TimeColumn,
    WholeColumn,
    YesNoColumn,
    problems_of,
    schema_text,
)
from tests.unit.samples.table.tables import learnt

BIRTH = DateColumn(name="birth", low="1930-01-01", high="2005-12-31")
VISIT = DateColumn(name="visit", low="2015-01-01", high="2024-12-31")
DEATH = DateColumn(name="death", low="2015-01-01", high="2030-12-31", may_be_missing=True)
AGE = WholeColumn(name="age", low=10, high=90)
DRUG = CategoryColumn(name="drug", categories=("A", "B"), may_be_missing=True)
DOSE = NumberColumn(name="dose", low=0, high=100, decimals=1, may_be_missing=True)
CASE = Schema(
    columns=(BIRTH, VISIT, DEATH, AGE, DRUG, DOSE),
    rules=(
        "birth <= visit <= death",
        "age = years(birth, visit)",
        "dose missing if drug missing",
        "drug missing if dose missing",
    ),
)


def num_broken(rows: Rows) -> int:
    return sum(int(mask.sum()) for _, mask in Rules(rows.schema).broken(rows.values))


def case_rows(number: int, seed: int = 0) -> Rows:
    """Rows that keep the rules of CASE."""
    random = np.random.default_rng(seed)
    visit = random.integers(0, 3600, number).astype(float)
    first = date(2015, 1, 1) - date(1930, 1, 1)
    birth = np.clip(visit + first.days - random.normal(17_000, 3_000, number).round(), 0, 27_000)
    death = np.minimum(visit + random.exponential(400, number).round(), 5_800)
    death[random.random(number) < 0.4] = np.nan
    drug = random.integers(0, 2, number).astype(float)
    dose = np.round(random.uniform(0, 100, number), 1)
    is_missing = random.random(number) < 0.2
    drug[is_missing] = dose[is_missing] = np.nan
    values = np.column_stack([birth, visit, death, np.zeros(number), drug, dose])
    rules = Rules(CASE)
    rules.fill_computed(values, kept=())
    keeps = (values[:, 3] >= 10) & (values[:, 3] <= 90)
    return Rows(CASE, values[keeps])


def test_the_case_is_made_without_a_broken_rule() -> None:
    rows = case_rows(2_000)
    kind = learnt(rows)
    back = kind.decode(kind.encode(rows), None)
    assert num_broken(rows) == num_broken(back) == 0
    apart = np.abs(back.values - rows.values)
    assert np.nanmax(apart[:, 1]) <= 4  # a cell of dates within ten years
    assert np.nanmedian(apart[:, 0]) < 200
    assert np.array_equal(np.isnan(back.values), np.isnan(rows.values))
    made = kind.decode(torch.randn(10_000, *kind.shape).tanh(), None)
    assert num_broken(made) == 0
    assert made.are_valid().all()


NUMBERS = ("a", "b", "c", "d")
SINGLE = (
    *("x <= y", "n = years(x, y)", "n = months(x, y)", "n = days(x, y)"),
    *("n = days(x, y) // 365.25", "s = a + b", "s = a - b", "s = c", "a >= 3", "b < 90"),
    *("q missing if r missing", "r missing if q missing", "a missing if q missing"),
    *("b missing if a missing", "q missing if a missing"),
)


@st.composite
def ruled(draw: st.DrawFn) -> Schema:
    """A schema with rules by chance; most of them can be kept."""
    same = draw(st.booleans())
    columns: list[AnyColumn] = []
    for name in NUMBERS:
        low, length = draw(st.integers(-50, 50)), draw(st.integers(1, 2000))
        decimals = 1 if same else draw(st.integers(0, 3))
        missing = draw(st.booleans())
        common = draw(st.lists(st.integers(low, low + length), max_size=2, unique=True))
        columns.append(
            NumberColumn(
                name=name, low=low, high=low + length, decimals=decimals, may_be_missing=missing,
                common=tuple(map(float, sorted(common))) if draw(st.booleans()) else (),
                spacing=draw(st.sampled_from(["linear", "log"])),
            )
        )  # fmt: skip
    for name in ("x", "y"):
        year, missing = draw(st.integers(1900, 2000)), draw(st.booleans())
        first, last = f"{year}-03-01", f"{year + draw(st.integers(1, 60))}-02-28"
        kind = DateColumn if draw(st.booleans()) else TimeColumn
        columns.append(kind(name=name, low=first, high=last, may_be_missing=missing))
    low, length = draw(st.integers(-100, 100)), draw(st.integers(1, 40_000))
    gaps = st.booleans()
    columns += [
        WholeColumn(name="n", low=low, high=low + length, may_be_missing=draw(gaps)),
        NumberColumn(name="s", low=-200, high=3000, decimals=3, may_be_missing=draw(gaps)),
        CategoryColumn(name="g", categories=("low", "high"), may_be_missing=draw(gaps)),
        YesNoColumn(name="q", may_be_missing=True),
        OrderedColumn(name="r", categories=("I", "II"), may_be_missing=True),
    ]
    pairs = st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=3, unique=True)
    signs = st.sampled_from([" <= ", " < ", " >= "])
    rules = st.one_of(
        st.tuples(pairs, signs).map(lambda pair: pair[1].join(pair[0])),
        st.sampled_from(SINGLE),
        st.builds(
            Follows,
            column=st.just("g"),
            source=st.just("c"),
            values=st.just({"-50": "low", "100.5": "high"}),
        ),
    )
    result = draw(st.lists(rules, min_size=1, max_size=5, unique_by=str))
    return Schema(columns=tuple(columns), rules=tuple(result))


@settings(max_examples=80, deadline=None)
@given(ruled(), st.integers(0, 1000), st.sampled_from([0.3, 1.0, 8.0]))
def test_whatever_a_generator_says_all_rules_are_kept(
    schema: Schema, seed: int, spread: float
) -> None:
    assume(not [*problems_of(schema)])
    random = torch.Generator().manual_seed(seed)
    kind = TableKind(schema)
    counts = torch.rand(kind.num_counts, generator=random) * 9 - 7  # most cells are empty
    kind.learn(counts.double())
    samples = (torch.randn(200, *kind.shape, generator=random) * spread).tanh()
    made = kind.decode(samples, None)
    assert {
        rule.text: int(mask.sum()) for rule, mask in Rules(schema).broken(made.values) if mask.any()
    } == {}
    assert made.are_valid().all()
    # They are rows like any other: what they say can be encoded, and comes back as rows that fit.
    again = kind.decode(kind.encode(made), None)
    assert again.are_valid().all()
    assert num_broken(again) == 0


STUDY = Schema(
    columns=(
        *CASE.columns,
        WholeColumn(name="before", low=0, high=100),
        WholeColumn(name="after", low=0, high=100),
        NumberColumn(name="change", low=-100, high=100, decimals=1),
        CategoryColumn(name="level", categories=("low", "high")),
        YesNoColumn(name="ill"),
    )
)
LEVELS = Follows(column="level", source="after", values={"0": "low", "50": "high"})


def with_rules(*rules: str | Follows) -> Schema:
    return msgspec.structs.replace(STUDY, rules=rules)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (["birth <= vist"], "there is no column vist|vist is no column"),
        (["born <= seen"], "there is no column born; there are birth, visit"),
        (["birth before visit"], "is none that is known; write a <= b"),
        (["birth <= 1800-01-01"], "1800-01-01 is no column, and as a value of birth .* bounds"),
        (["birth <= age"], "a moment cannot be compared with a number"),
        (["drug < dose"], "drug is a category; name a column of numbers"),
        (["age <= age"], "names one column twice"),
        (["before <= after", "after < before"], "in a circle; take one"),
        (["dose missing if visit missing"], 'visit is never missing; say "may_be_missing": true'),
        (["visit missing if dose missing"], 'visit must not be missing; say "may_be_missing"'),
        (["age = years(birth, dose)"], "dose is no date"),
        (["dose = years(birth, visit)"], "dose must be of the kind whole"),
        (["age = years(birth, visit) // 2"], "only days are divided"),
        (["age = age2"], "age2 is nothing that can be computed; write"),
        (["change = birth + visit"], "mixes kinds of columns"),
        (["after = change - before"], "the same number of decimals"),
        (["change = after - before", "change = before + after"], "change is computed twice"),
        (["after = before", "before = after"], "is computed from itself"),
        (["change = after - before", "change <= dose"], "change is computed itself; name"),
        (["change = after + before", "before <= after"], "is part of a sum, and stands in another"),
        (["before > 90", "after < 20", "before <= after"], "leave no value for (before|after)"),
        ([msgspec.structs.replace(LEVELS, values={"1": "low"})], "says nothing of 0, the lowest"),
        ([msgspec.structs.replace(LEVELS, values={"x": "low"})], "x is no number, in column after"),
        ([msgspec.structs.replace(LEVELS, source="ill")], "0 is none of its categories, in column"),
        ([msgspec.structs.replace(LEVELS, column="grade")], "there is no column grade"),
    ],
)
def test_each_mistake_has_a_line_with_the_way_out(rules: list[str | Follows], why: str) -> None:
    (problem,) = problems_of(with_rules(*rules))
    assert re.search(why, problem), problem
    assert "\n" not in problem
    assert problem.startswith("rule")


def test_chains_constants_and_both_directions_are_read() -> None:
    schema = with_rules("visit > birth", "18 <= age < 80", "2000-01-01 >= birth", LEVELS)
    assert [*problems_of(schema)] == []
    assert not [*problems_of(with_rules(msgspec.structs.replace(LEVELS, source="age")))]
    assert len(Rules(schema).all) == 5


def test_a_schema_without_rules_has_the_hash_and_samples_that_it_had() -> None:
    assert "rules" not in schema_text(STUDY)
    rows = case_rows(300)
    plain = msgspec.structs.replace(CASE, rules=msgspec.UNSET)
    kind = learnt(Rows(plain, rows.values))
    assert [place.column for place in kind.layout.places] == [*plain.columns]


def test_a_row_adds_one_to_each_histogram_and_rules_add_no_histogram() -> None:
    rows = case_rows(50)
    kind = TableKind(CASE)
    plain = TableKind(msgspec.structs.replace(CASE, rules=msgspec.UNSET))
    one = kind.counts(Rows(CASE, rows.values[:1]))
    assert one.max() == 1
    assert one.sum() <= kind.num_histograms < plain.num_histograms
    assert [place.column.name for place in kind.layout.places][:3] == [
        "birth to visit",
        "visit",
        "visit to death",
    ]


@pytest.mark.parametrize("target", ["before", "level", "after"])
def test_a_target_that_rules_bind_is_refused(target: str) -> None:
    columns = [
        msgspec.structs.replace(c, high=20) if c.name in ("before", "after") else c
        for c in STUDY.columns
    ]
    levels = msgspec.structs.replace(LEVELS, values={"0": "low", "15": "high"})
    schema = Schema(columns=tuple(columns), rules=("before <= after", levels))
    with pytest.raises(BadInput, match="rules of the schema bind its values"):
        TableKind(schema, target)


def test_a_column_may_follow_from_the_target() -> None:
    outcome = CategoryColumn(name="outcome", categories=("alive", "dead"))
    code = WholeColumn(name="code", low=0, high=1)
    number = NumberColumn(name="x", low=0, high=1)
    rule = Follows(column="code", source="outcome", values={"alive": 1, "dead": 0})
    schema = Schema(columns=(outcome, code, number), rules=(rule,))
    kind = TableKind(schema, "outcome")
    rows = Rows(schema, np.array([[0, 1, 0.25], [1, 0, 0.5]]))
    kind.learn(kind.counts(rows).double())
    back = kind.decode(kind.encode(rows), kind.labels_of(rows))
    assert np.array_equal(back.values[:, :2], rows.values[:, :2])
    with pytest.raises(BadInput, match="bind"):
        TableKind(schema, "code")


def test_the_rows_that_keep_each_rule_are_counted() -> None:
    rows = case_rows(400)
    kind = learnt(rows)
    samples = kind.encode(rows)
    labels = torch.zeros(len(samples), dtype=torch.int64)
    verdict = kind.judge((samples[:100], labels[:100]))(samples[100:], labels[100:])
    assert verdict.scores["kept_rules"] == 1
    made = len(samples) - 100
    assert verdict.figures["rules"][0]["rule"] == "birth <= visit <= death"
    assert {(rule["made"], rule["real"]) for rule in verdict.figures["rules"]} == {(made, 100)}
    plain = msgspec.structs.replace(CASE, rules=msgspec.UNSET)
    other = learnt(Rows(plain, rows.values)).judge(None)
    assert "kept_rules" not in other(learnt(Rows(plain, rows.values)).encode(rows), None).scores
