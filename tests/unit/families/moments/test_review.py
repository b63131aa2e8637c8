"""The distance between generated rows and the sums that workers sent."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.families.moments.contract import NoisySums
from mdgan.families.moments.pairs.generator import PairsGenerator
from mdgan.families.moments.pairs.message import MOST_CELLS, PairCounts
from mdgan.gan.labels import Samples
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.schema import AnyColumn, CategoryColumn, NumberColumn, Schema

NAMES = ["x", "y", "z"]
NUM_ROWS = 20_000


def table(columns: tuple[AnyColumn, ...]) -> PairCounts:
    """Of columns whose values all came equally often."""
    kind = TableKind(Schema(columns=columns), None)
    kind.learn(torch.full((kind.num_counts,), 100, dtype=torch.int64))
    return PairCounts(kind)


@pytest.fixture(scope="module")
def counts() -> PairCounts:
    categories = ("A", "B", "C", "D")
    return table(tuple(CategoryColumn(name=n, categories=categories) for n in NAMES)).fit_to(0.0)


def review(counts: PairCounts, sums: Tensor, variance: float = 0.0) -> dict[str, Tensor]:
    """Of rows of a generator that knows nothing yet."""
    torch.manual_seed(0)
    model = PairsGenerator(counts.kind)
    counts.put_into(model)
    result: Any = counts.lesson(NoisySums(sums, NUM_ROWS, variance), torch.device("cpu")).review(
        model
    )
    assert result["correlated"] == NAMES
    return {name: torch.tensor(result[name]) for name in ("made", "real")}


def sums_of(counts: PairCounts, choices: Tensor) -> Tensor:
    rows = torch.nn.functional.one_hot(choices, 4).flatten(1).float()
    return counts.sums([(Samples(rows, None), torch.ones(len(rows)))])


@pytest.fixture(scope="module")
def generated(counts: PairCounts) -> Tensor:
    """What 20,000 rows of that generator would tell."""
    torch.manual_seed(0)
    model = PairsGenerator(counts.kind)
    counts.put_into(model)
    with torch.no_grad():
        rows = model(torch.randn(NUM_ROWS, 128 + 3))
    return counts.sums([(Samples(rows, None), torch.ones(len(rows)))])


def test_rows_like_those_that_told_are_near_in_all_pairs(
    counts: PairCounts, generated: Tensor
) -> None:
    verdict = review(counts, generated)
    assert verdict["made"].shape == (3, 3)
    assert bool((verdict["made"] > 0.97).all())
    assert torch.equal(verdict["real"], torch.ones(3, 3))


def test_the_pair_that_differs_is_found(counts: PairCounts) -> None:
    """x and y are always equal, and z is never D."""
    choices = torch.randint(4, (NUM_ROWS, 3), generator=torch.Generator().manual_seed(1))
    choices[:, 1], choices[:, 2] = choices[:, 0], choices[:, 2] % 3
    made = review(counts, sums_of(counts, choices))["made"]
    assert torch.equal(made, made.T)
    assert made[0, 1] < 0.4 < 0.65 < float(made[0, 2]) < float(made[0, 0])
    assert 0.6 < float(made[2, 2]) < 0.85


def test_noise_explains_what_it_alone_makes(counts: PairCounts, generated: Tensor) -> None:
    deviation = 300.0
    noise = torch.randn(generated.shape, generator=torch.Generator().manual_seed(2)).double()
    variance = (deviation / counts.length) ** 2
    verdict = review(counts, generated + deviation * noise, variance)
    own = torch.eye(3, dtype=torch.bool)
    assert float(verdict["real"][~own].mean()) == pytest.approx(
        float(verdict["made"][~own].mean()), abs=0.03
    )
    assert bool((verdict["real"][~own] < 0.95).all())


def test_a_table_of_many_columns_says_which_values_count_as_one(counts: PairCounts) -> None:
    assert "count as one" not in counts.about()
    numbers = [NumberColumn(name=f"n{i}", low=0, high=1, decimals=3) for i in range(60)]
    fitted = table(tuple(numbers)).fit_to(1.0)
    assert fitted.num_cells <= MOST_CELLS
    assert 1 < fitted.fineness < 16
    assert f"numbers have {fitted.fineness} ranges, not 16" in fitted.about()
