"""Scores of synthetic rows, against SciPy and scikit-learn, and conditions on rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mdgan.errors import BadInput
from mdgan.samples.contract import Verdict
from mdgan.samples.table.kind import RowCondition, TableKind
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import (
    CategoryColumn,
    NumberColumn,
    OrderedColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
)
from mdgan.samples.table.scores import area_of_lr, shape_of
from mdgan.samples.table.spread import Spread, count_column

AGE = WholeColumn(name="age", low=0, high=90, may_be_missing=True)
DOSE = NumberColumn(name="dose", low=0, high=2000, decimals=0, common=(0.0,))
SCHEMA = Schema(
    columns=(
        AGE,
        DOSE,
        CategoryColumn(name="ward", categories=("A", "B", "C")),
        OrderedColumn(name="grade", categories=("I", "II", "III")),
        YesNoColumn(name="sick"),
    )
)


def rows(number: int, seed: int, slope: float = 1.0) -> Rows:
    """Rows in which age, dose and illness go together."""
    random = np.random.default_rng(seed)
    age = random.integers(0, 91, number).astype(np.float64)
    dose = np.clip(np.round(age * 10 * slope + random.normal(0, 100, number)), 0, 2000)
    ward, grade = random.integers(0, 3, number), random.integers(0, 3, number)
    sick = random.random(number) < 1 / (1 + np.exp(-(age - 45) * slope / 10))
    age[random.random(number) < 0.1] = np.nan
    return Rows(SCHEMA, np.column_stack([age, dose, ward, grade, sick]).astype(np.float64))


def judged(made: Rows, kept: Rows | None, real: Rows | None = None) -> Verdict:
    kind = TableKind(SCHEMA, "sick")
    kind.learn(kind.counts(real or rows(4000, 0)).double())
    held_out = None if kept is None else (kind.encode(kept), kind.labels_of(kept))
    return kind.judge(held_out)(kind.encode(made), kind.labels_of(made))


def test_real_rows_have_the_best_scores() -> None:
    verdict = judged(rows(3000, 2), rows(2000, 1))
    assert verdict.scores["column_shapes"] > 0.97
    assert verdict.scores["pair_trends"] > 0.95
    assert verdict.scores["valid_rows"] == 1
    for name in ("tstr_lr", "tstr_gb"):
        assert verdict.scores[name] == pytest.approx(verdict.real[name], abs=0.03)
    assert verdict.num_held_out == 2000
    assert not verdict.left_out


def test_what_does_not_go_together_costs_trends_and_an_area_but_no_shapes() -> None:
    real = rows(3000, 2)
    mixed = real.values.copy()
    for place in range(mixed.shape[1]):
        np.random.default_rng(place).shuffle(mixed[:, place])
    verdict = judged(Rows(SCHEMA, mixed), rows(2000, 1))
    assert verdict.scores["column_shapes"] > 0.97
    assert verdict.scores["pair_trends"] < 0.93
    assert verdict.scores["tstr_gb"] < verdict.real["tstr_gb"] - 0.1


def test_copies_of_held_out_rows_are_found() -> None:
    kept = rows(500, 1)
    assert judged(kept, kept).scores["closest_record"] == 0
    assert judged(rows(500, 2), kept).scores["closest_record"] > 0


def test_without_held_out_rows_shapes_are_left() -> None:
    verdict = judged(rows(500, 2), None)
    assert verdict.scores.keys() == {"column_shapes", "valid_rows"}
    assert verdict.left_out.keys() == {"pair_trends", "tstr_lr", "tstr_gb", "closest_record"}
    assert "--held-out" in verdict.left_out["tstr_lr"]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([AGE, DOSE]))
def test_shapes_of_numbers_are_those_of_kolmogorov_and_smirnov(
    first: int, second: int, column: NumberColumn
) -> None:
    place = SCHEMA.place(column.name)
    real, made = (rows(300, seed).values[:, place] for seed in (first, second))
    spread = Spread(column, count_column(column, real).astype(np.float64))
    expected = 1 - ks_2samp(real[~np.isnan(real)], made[~np.isnan(made)]).statistic
    # The counts have cells of two doses: within a cell the distribution is not known.
    assert shape_of(column, spread, made) == pytest.approx(expected, abs=0.015)


def test_shapes_of_categories_are_total_variations() -> None:
    column = CategoryColumn(name="x", categories=("a", "b"), may_be_missing=True)
    spread = Spread(column, np.array([5.0, 3.0, 2.0]))
    made = np.array([0.0, 1.0, np.nan, np.nan])
    assert shape_of(column, spread, made) == pytest.approx(1 - (0.25 + 0.05 + 0.3) / 2)


def test_the_area_is_scikit_learns() -> None:
    kind = TableKind(SCHEMA, "sick")
    kind.learn(kind.counts(rows(4000, 0)).double())
    (x, y), (v, w) = ((kind.encode(r), kind.labels_of(r)) for r in (rows(400, 1), rows(300, 2)))
    fitted = LogisticRegression(max_iter=1000).fit(x.numpy(), y.numpy())
    expected = roc_auc_score(w.numpy(), fitted.predict_proba(v.numpy())[:, 1])
    assert area_of_lr(x, y, v, w) == pytest.approx(expected)
    assert area_of_lr(x, torch.zeros_like(y), v, w) is None


@pytest.mark.parametrize(
    ("text", "holding"),
    [
        ("ward=B", [1]),
        ("grade>=II", [1, 2]),
        ("grade<=I", [0]),
        ("age<=30", [0]),
        ("age=", [1]),
        ("sick=yes", [0, 2]),
        (" dose >= 100 ", [1, 2]),
    ],
)
def test_conditions(text: str, holding: list[int]) -> None:
    values = np.array([[30, 0, 0, 0, 1], [np.nan, 100, 1, 1, 0], [50, 300, 2, 2, 1]])
    held = RowCondition(SCHEMA, text).holds(Rows(SCHEMA, values))
    assert np.flatnonzero(held).tolist() == holding


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ward", "--where ward: must be COLUMN=VALUE"),
        ("wards=A", "--where wards=A: there is no column wards; there are age, dose"),
        ("ward=D", "--where ward=D: D is none of A, B, C"),
        ("ward>=A", "--where ward>=A: A has no order; write ward=A"),
        ("age=old", "--where age=old: old is no whole number"),
        ("age>=95", "--where age>=95: 95"),
        ("dose=", "is no value of this column"),
        ("dose>=9.5", "--where dose>=9.5: 9.5 has more decimals than the column, 0"),
    ],
)
def test_conditions_that_make_no_sense(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        RowCondition(SCHEMA, text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rare_values_are_told_by_name_with_what_counts_expect() -> None:
    age = WholeColumn(name="age", low=18, high=89, above=89.0, common=(50.0,), may_be_missing=True)
    ward = CategoryColumn(name="ward", categories=("A", "B", "C", "D"))
    schema = Schema(columns=(age, ward, YesNoColumn(name="sick")))
    real = np.array([[50 + i % 2, i % 2, 1] for i in range(2000)], dtype=np.float64)
    real[:4, 0], real[4:10, 0], real[10:14, 1], real[14:20, 2] = 90, np.nan, 2, 0
    kind = TableKind(schema, "sick")
    kind.learn(kind.counts(Rows(schema, real)).double())
    made = np.array([[50 + i % 2, i % 2, 1] for i in range(1000)], dtype=np.float64)
    made[0, 0], made[:9, 1] = np.nan, 2
    rows = Rows(schema, made)
    told = kind.judge(None)(kind.encode(rows), kind.labels_of(rows)).rare
    results = {(each["column"], each["value"]): [*each.values()][2:] for each in told}
    assert results == {
        ("age", ">89"): [2.0, 0],
        ("age", "missing"): [3.0, 1],
        ("ward", "C"): [2.0, 9],
        ("sick", "no"): [3.0, 0],
    }
    assert [each["column"] for each in told] == ["sick", "age", "age", "ward"]


def test_conditions_are_told_the_share_of_all_rows() -> None:
    age = WholeColumn(name="age", low=18, high=89, above=89.0, common=(50.0,), may_be_missing=True)
    dose = NumberColumn(name="dose", low=0, high=100, decimals=1)
    ward = OrderedColumn(name="ward", categories=("A", "B", "C"), may_be_missing=True)
    schema = Schema(columns=(age, dose, ward))
    ages, wards = [20, 50, 50, 90, np.nan], [0, 1, 1, 2, np.nan]
    values = [[ages[i % 5], i % 100, wards[i % 5]] for i in range(1000)]
    kind = TableKind(schema)
    kind.learn(kind.counts(Rows(schema, np.array(values, dtype=np.float64))).double())
    shares = {"age=50": "40", "age>=50": "60", "age<=49": "20", "age=": "20", "dose<=49.5": "50"}
    shares |= {"ward>=B": "60", "ward=": "20", "ward=C": "20"}
    for text, share in shares.items():
        assert f"{text} for {share} %" in kind.where([text]).real_shares
    assert kind.where(["age=21"]).real_shares == ""
