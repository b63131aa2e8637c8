"""Rows become samples and samples become rows, by counts of all rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import (
    CategoryColumn,
    NumberColumn,
    ScaledColumn,
    Schema,
    WholeColumn,
    YesNoColumn,
)
from mdgan.samples.table.spread import Cells
from tests.unit.samples.table.tables import learnt, tables


def of_numbers(values: list[float], decimals: int = 6, common: tuple[float, ...] = ()) -> Rows:
    column = NumberColumn(name="x", low=0, high=100, decimals=decimals, common=common)
    schema = Schema(columns=(column,))
    return Rows(schema, np.array(values).reshape(-1, 1))


@settings(max_examples=60)
@given(tables())
def test_rows_come_back(rows: Rows) -> None:
    """Categories and missing values exactly, numbers within a cell of the histogram."""
    kind = learnt(rows)
    samples = kind.encode(rows)
    assert samples.shape == (len(rows), *kind.shape)
    assert samples.dtype == torch.float32
    assert samples.abs().max() <= 1
    back = kind.decode(samples, None)
    assert back.are_valid().all()
    for place, column in enumerate(rows.schema.columns):
        there, here = rows.values[:, place], back.values[:, place]
        assert np.array_equal(np.isnan(there), np.isnan(here))
        known = ~np.isnan(there)
        if isinstance(column, ScaledColumn):
            cells = Cells(column)
            apart = cells.positions(there[known]) - cells.positions(here[known])
            assert (np.abs(apart) <= 1 + 1e-3).all()
        else:
            assert np.array_equal(there[known], here[known])


@settings(max_examples=30)
@given(tables(), st.data())
def test_counts_add_up(rows: Rows, data: st.DataObject) -> None:
    kind = TableKind(rows.schema)
    cut = data.draw(st.integers(0, len(rows)))
    first = Rows(rows.schema, rows.values[:cut])
    second = Rows(rows.schema, rows.values[cut:])
    whole = kind.counts(rows)
    assert whole.shape == (kind.num_counts,)
    assert torch.equal(kind.counts(first) + kind.counts(second), whole)
    # One row changes as many counts as it says, each by 1: what noise must cover.
    one = kind.noisy_form(kind.counts(Rows(rows.schema, rows.values[:1])))
    assert one.shape == (kind.num_noisy_counts,)
    assert one.max() <= 1
    assert one.sum() <= kind.num_histograms
    parts = [kind.noisy_form(kind.counts(own)) for own in (first, second)]
    assert torch.equal(parts[0] + parts[1], kind.noisy_form(whole))
    back = kind.from_noisy(kind.noisy_form(whole).double(), 0.0)
    assert torch.allclose(back, whole.double(), rtol=0, atol=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 3000), st.floats(0, 1e6), st.integers(0, 9))
def test_noise_makes_no_rows_that_no_site_has(high: int, variance: float, seed: int) -> None:
    """Whatever number of cells: none is below 0, and each part has the rows of those within it."""
    kind = TableKind(Schema(columns=(WholeColumn(name="x", low=0, high=high),)))
    random = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 3, (kind.num_counts,), generator=random)
    sums = kind.noisy_form(counts).double()
    sums += variance**0.5 * torch.randn(sums.shape, generator=random, dtype=torch.float64)
    result = kind.from_noisy(sums, variance)
    assert result.min() >= 0
    # The widest parts, at most 16, say how many rows there are.
    assert abs(result.sum() - counts.sum()) <= 6 * 4 * variance**0.5 + 1e-6


@pytest.mark.parametrize("noise", [3.0, 30.0])
def test_noise_on_counts_of_a_tree_spoils_less_than_on_flat_ones(noise: float) -> None:
    kind = TableKind(Schema(columns=(NumberColumn(name="x", low=0, high=100, decimals=6),)))
    random = np.random.default_rng(0)
    rows = Rows(kind.schema, random.normal(37, 1, (5000, 1)))
    exact = kind.counts(rows).double()
    flat = (exact + noise * torch.from_numpy(random.normal(size=len(exact)))).clamp(min=0)
    deviation, sums = noise * kind.num_histograms**0.5, kind.noisy_form(exact)
    sums = sums + deviation * torch.from_numpy(random.normal(size=len(sums)))
    result = kind.from_noisy(sums, deviation**2)
    shares = [(own / own.sum()).cumsum(0) for own in (exact, flat, result)]
    of_flat, of_tree = (float((own - shares[0]).abs().max()) for own in shares[1:])
    assert of_tree < min(0.06, of_flat / 2)
    assert float(result[600:].sum()) < 0.03 * 5000


def test_scores_are_normal_quantiles_of_the_share_below() -> None:
    values = [0.0, 10, 20, 20, 40, 100]
    kind = learnt(of_numbers(values, decimals=0))
    scores = kind.encode(of_numbers(values, decimals=0))[:, 0]
    assert scores.tolist() == sorted(scores.tolist())
    # The middle of the cells of 20: a share of 2/6 + half of 2/6 is below.
    column = NumberColumn(name="x", low=0, high=100, decimals=0)
    position = Cells(column).positions(np.array([20.0]))[0]
    share = (2 + 2 * (position % 1)) / 6
    cut = norm.cdf(-3)
    assert float(scores[2]) == pytest.approx(norm.ppf(cut + share * (1 - 2 * cut)) / 3, abs=1e-5)


def test_common_values_are_made_as_often_as_they_occur() -> None:
    rows = of_numbers([0.0] * 6 + [7.3, 8.1], common=(0.0,), decimals=1)
    kind = learnt(rows)
    assert kind.shape == (3,)  # a score, "another value", 0
    back = kind.decode(kind.encode(rows), None)
    assert back.values[:, 0].tolist()[:6] == [0.0] * 6


def test_no_value_comes_from_where_no_row_is() -> None:
    kind = learnt(of_numbers([1.0, 2.0, 90.0]))
    samples = torch.linspace(-1, 1, 2001).reshape(-1, 1)
    made = kind.decode(samples, None).values[:, 0]
    near = np.abs(made.reshape(-1, 1) - np.array([1.0, 2.0, 90.0])).min(1)
    assert near.max() <= 100 / 1024 + 1e-6


def test_the_target_is_the_label_and_its_counts_are_learnt() -> None:
    schema = Schema(
        columns=(
            WholeColumn(name="stage", low=1, high=3),
            CategoryColumn(name="site", categories=("a", "b")),
        )
    )
    rows = Rows(schema, np.array([[1, 0], [3, 1], [3, 0]], dtype=np.float64))
    kind = learnt(rows, "stage")
    assert kind.shape == (2,)
    assert kind.class_names == ("1", "2", "3")
    labels = kind.labels_of(rows)
    assert labels.tolist() == [0, 2, 2]
    counted = kind.class_counts
    assert counted is not None
    assert counted.tolist() == [1, 0, 2]
    assert np.array_equal(kind.decode(kind.encode(rows), labels).values, rows.values)


def test_noise_below_0_counts_as_no_row() -> None:
    schema = Schema(columns=(YesNoColumn(name="x"), YesNoColumn(name="y")))
    kind = TableKind(schema, "y")
    kind.learn(torch.tensor([3.2, -1.0, -2.4, 5.4], dtype=torch.float64))
    assert kind.class_counts is not None
    assert kind.class_counts.tolist() == [0, 5]


@pytest.mark.parametrize(
    "counts", [torch.zeros(3), torch.tensor([1.0, float("nan")]), torch.zeros(2, 1)]
)
def test_counts_that_do_not_fit_are_refused(counts: torch.Tensor) -> None:
    kind = TableKind(Schema(columns=(YesNoColumn(name="x"),)))
    with pytest.raises(ValueError, match="counts"):
        kind.learn(counts)
    assert not kind.is_learnt
    with pytest.raises(RuntimeError, match="before their spread is learnt"):
        kind.encode(Rows(kind.schema, np.zeros((1, 1))))


def test_columns_count_alike_where_rows_are_compared() -> None:
    """A number and a choice of 40, each of which takes all values equally often."""
    random, number = np.random.default_rng(0), 4000
    names = tuple(f"airport {n}" for n in range(40))
    schema = Schema(
        columns=(
            NumberColumn(name="x", low=0, high=100, decimals=6),
            CategoryColumn(name="from", categories=names),
        )
    )
    values = np.stack([random.uniform(0, 100, number), random.integers(40, size=number)], 1)
    kind = learnt(Rows(schema, values))
    weighted = kind.encode(Rows(schema, values)) * torch.tensor(kind.value_weights)
    apart = (weighted[: number // 2] - weighted[number // 2 :]).square().mean(0)
    of_column = kind.layout.width / 2  # a distance is in units of the root of all values
    assert float(apart[0]) == pytest.approx(of_column, rel=0.1)
    assert float(apart[1:].sum()) == pytest.approx(of_column, rel=0.1)


def test_a_value_at_the_edge_of_a_cell_comes_back_into_it() -> None:
    """Of 1,024 cells those between 0 and 50 are empty, and 50 is where the 513th begins."""
    rows = of_numbers([0.0, 50.0, 50.0])
    kind = learnt(rows)
    assert np.allclose(kind.decode(kind.encode(rows), None).values, rows.values, atol=100 / 1024)
