"""What a worker sends of a table, and the model learns, follows the page: a plain computation."""

from bisect import bisect
from copy import deepcopy
from itertools import accumulate, combinations_with_replacement
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.families.moments.contract import NoisySums
from mdgan.families.moments.message import EvenGenerator
from mdgan.families.moments.pairs.generator import PairsGenerator
from mdgan.families.moments.pairs.message import PairCounts
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.models.table import NOISE_SIZE
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import CategoryColumn, NumberColumn, Schema
from tests.fake_cuda import fake_cuda
from tests.marks import examples
from tests.unit.families.moments.pair_tables import OUTCOMES, learnt, plain_pairs
from tests.unit.gan import small
from tests.unit.samples.table.tables import tables

STEPS, BATCH = 3, 24
VARIANCE = 0.01


def weighed(samples: Samples, weights: Tensor | None = None) -> list[tuple[Samples, Tensor]]:
    return [(samples, torch.ones(len(samples)) if weights is None else weights)]


@pytest.mark.parametrize(("fineness", "least"), [(16, 0.0), (2, 0.0), (7, 8.0), (32, 1000.0)])
def test_what_is_told_is_counted_by_a_loop_over_the_file(
    tmp_path: Path, fineness: int, least: float
) -> None:
    """With missing and common values, rare options, and rare classes: exactly the same numbers."""
    counts, samples, rows = learnt(tmp_path)
    asked = counts.asked({"fineness": fineness, "least": least})
    expected = plain_pairs(rows, fineness, least)
    assert torch.equal(asked.sums(weighed(samples)), expected)
    assert asked.form.shape == expected.shape


def a_generator(counts: PairCounts, device: torch.device) -> EvenGenerator:
    with RandomState(0, small.CPU).in_place():
        model = PairsGenerator(counts.kind, width=6)
    counts.put_into(model)
    model = model.to(device)
    return EvenGenerator(
        *(model, small.adam(model)),
        z_dim=NOISE_SIZE + len(model.columns),
        noise=generator_for(0, "noise"),
        random_state=RandomState(0, device),
    )


def plain_loss(
    model: PairsGenerator, noise: Tensor, labels: list[list[int]], told: Tensor, columns: list[int]
) -> Tensor:
    """J of the page, pair by pair; `columns` are how many bins each column has."""
    ends = list(accumulate(columns))
    column_of = [bisect(ends, i) for i in range(ends[-1])]
    every = combinations_with_replacement(range(ends[-1]), 2)
    pairs = [(i, j) for i, j in every if i == j or column_of[i] != column_of[j]]
    d, half = len(columns), len(labels[0]) // 2
    of_self = torch.tensor([i == j for i, j in pairs])
    sizes = [max(0.0, float(row[of_self].sum()) / d) for row in told]
    m, loss = sum(sizes), torch.zeros(())
    used = torch.cat(model.bins.used(model.columns))
    for y, (size, row) in enumerate(zip(sizes, told, strict=True)):
        z = noise[2 * half * y : 2 * half * (y + 1)]
        x = torch.cat([z, torch.eye(len(OUTCOMES))[labels[y]]], 1)
        for block in model.blocks:
            assert isinstance(block, torch.nn.Sequential)
            x = torch.cat([block[0](x).clamp(min=0), x], 1)
        raised = (x @ model.last.weight.T + model.last.bias)[:, used].exp()
        q = torch.cat(
            [part / part.sum(1, keepdim=True) for part in raised.tensor_split(ends[:-1], 1)], 1
        )
        for s, (i, j) in zip(row.tolist(), pairs, strict=True):
            both = q[:, i] if i == j else q[:, i] * q[:, j]
            first, second = (size / m * part.mean() - s / m for part in (both[:half], both[half:]))
            loss = loss + first * second
    return loss - VARIANCE * d * (d + 1) / 2 * told.numel() / m**2


@pytest.mark.parametrize("noisy", [False, True])
def test_what_is_learnt_is_that_of_a_plain_loop(tmp_path: Path, noisy: bool) -> None:
    """The loss of each of some steps within 10⁻⁵ of the first; rare classes are in one group."""
    counts, samples, _ = learnt(tmp_path)
    counts = counts.asked({"fineness": 3, "least": 8.0})
    told = counts.sums(weighed(samples))
    if noisy:
        told = told + torch.randn(told.shape, generator=generator_for(1)) * 3
    generator = a_generator(counts, small.CPU)
    model = generator.model
    assert isinstance(model, PairsGenerator)
    plain = deepcopy(model)
    optimizer, twin = small.adam(plain), a_generator(counts, small.CPU)
    lesson = counts.lesson(NoisySums(told, 211, VARIANCE), small.CPU)
    for _ in range(STEPS):
        z, _ = twin.draw_inputs(BATCH)
        noise, drawn = z[:, :NOISE_SIZE], z[:, NOISE_SIZE].tolist()
        rare = [2 if one < 0 else 3 for one in drawn[16:]]  # they come equally often
        labels = [[0] * 8, [1] * 8, rare]
        expected = plain_loss(plain, noise, labels, told, [*map(len, counts.used)])
        gradients = torch.autograd.grad(expected, [*plain.parameters()])
        for weight, gradient in zip(plain.parameters(), gradients, strict=True):
            weight.grad = gradient
        optimizer.step()
        assert lesson.step(generator, BATCH) == pytest.approx(float(expected.detach()), abs=1e-5)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def on_device(counts: PairCounts, told: NoisySums, device: torch.device) -> tuple[float, Tensor]:
    generator = a_generator(counts, device)
    loss = counts.lesson(told, device).step(generator, BATCH)
    assert counts.kept_in(generator.model).num_bins == counts.num_bins
    return loss, generator.draw(20).images.detach().cpu()


def test_a_step_and_rows_on_a_gpu_are_those_on_the_cpu(tmp_path: Path) -> None:
    counts, samples, _ = learnt(tmp_path)
    counts = counts.asked({"fineness": 5, "least": 8.0})
    told = NoisySums(counts.sums(weighed(samples)), 211, VARIANCE)
    expected, rows = on_device(counts, told, small.CPU)
    with fake_cuda() as device:
        loss, result = on_device(counts, told, device)
    assert loss == expected
    assert torch.equal(result, rows)


@settings(max_examples=examples(25), deadline=None)
@given(tables(), st.sampled_from([2, 5, 32]), st.sampled_from([0.0, 2.0, 50.0]), st.data())
def test_no_sample_and_no_unit_adds_more_than_its_length(
    rows: Rows, fineness: int, least: float, data: st.DataObject
) -> None:
    kind = TableKind(rows.schema)
    kind.learn(kind.counts(rows))
    counts = PairCounts(kind).asked({"fineness": fineness, "least": least})
    images = kind.encode(rows)
    if data.draw(st.booleans(), label="strange samples"):
        odd = [nan, inf, -inf, 0.0, -1.0, 1.0, 1e30, 0.3, -0.0]
        numbers = st.lists(st.sampled_from(odd), min_size=images.numel(), max_size=images.numel())
        images = torch.tensor(data.draw(numbers)).view_as(images)
    samples = Samples(images, torch.zeros(len(images), dtype=torch.int64))
    every, without = counts.sums(weighed(samples)), counts.sums(weighed(samples[1:]))
    most = counts.length * (1 + 1e-9)
    assert float((every - without).norm()) == pytest.approx(counts.length)
    parts = data.draw(st.lists(st.floats(0, 1), min_size=len(rows), max_size=len(rows)))
    shares = torch.tensor(parts, dtype=torch.float64) / max(1.0, sum(parts))
    assert float(counts.sums(weighed(samples, shares)).norm()) <= most
    assert bool((counts.lengths(samples) <= most).all())


ASKED: list[tuple[Any, Any]] = [
    *((fineness, 0.0) for fineness in (0, 1, 33, -2, True, "16", 16.0, None, 10**400, [16])),
    *((16, least) for least in (nan, inf, -inf, -1.0, "0", None, 10**400, [0.0])),
]


@pytest.mark.parametrize(("fineness", "least"), ASKED, ids=lambda given: f"{given!s:.9}")
def test_what_makes_no_sense_is_not_told(tmp_path: Path, fineness: Any, least: Any) -> None:
    counts, _, _ = learnt(tmp_path, 20)
    with pytest.raises(ValueError, match=r"^bins of .{1,20} (parts|rows at least)$"):
        counts.asked({"fineness": fineness, "least": least})


@pytest.mark.parametrize("is_wide", [True, False])
def test_what_is_too_much_is_not_counted_whoever_asks(is_wide: bool) -> None:
    """Neither too many pairs, nor matrices of a column with thousands of options."""
    numbers = [NumberColumn(name=f"n{k}", low=0, high=1, decimals=3) for k in range(60)]
    codes = CategoryColumn(name="code", categories=tuple(map(str, range(10_000))))
    kind = TableKind(Schema(columns=tuple(numbers) if is_wide else (codes,)))
    kind.learn(torch.ones(kind.num_counts))
    with pytest.raises(ValueError, match="pairs of values"):
        PairCounts(kind).asked({"fineness": 32, "least": 0.0})
    assert not PairCounts(kind).fit_to(0.0).is_too_large


def test_weights_with_which_no_row_could_be_drawn_are_refused(tmp_path: Path) -> None:
    counts, _, _ = learnt(tmp_path)
    model = PairsGenerator(counts.kind, width=6)
    broken = {**model.state_dict(), "group": torch.full_like(model.group, -1)}
    with pytest.raises(RuntimeError, match="a column has no bins"):
        model.load_state_dict(broken)
