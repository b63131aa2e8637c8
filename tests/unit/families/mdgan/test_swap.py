"""Givers and takers of swaps, how often they swap, and what a discriminator reveals."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.swap_tells import digits, leak_of, make_settings, observers, steps
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.swaps import Moves, are_uneven, draw_swap, interval_for, swap_every
from tests.claims.registry import claim
from tests.marks import examples

seeds = st.integers(0, 2**63 - 1)
numbers = st.integers(0, 10_000)
worker_sets = st.sets(st.integers(1, 500), max_size=40).map(sorted)
forms = st.sampled_from(["pairs", "derangement"])
quick = settings(deadline=None, max_examples=examples(24))


def sitting_out(moves: Moves, workers: list[int]) -> list[int]:
    return [worker for worker in workers if worker not in moves]


@quick
@given(seeds, numbers, worker_sets)
@claim(
    "pairs",
    "the server draws pairs that do not overlap (Darmanger and Gombas, section 5.3), so that no "
    "discriminator is lost.",
)
def test_pairs_are_symmetric_and_cover_all_but_at_most_one(
    seed: int, number: int, workers: list[int]
) -> None:
    moves = draw_swap("pairs", seed, number, workers)
    assert moves.keys() <= set(workers)
    for giver, taker in moves.items():
        assert giver != taker
        assert moves[taker] == giver
    assert len(sitting_out(moves, workers)) == (1 if len(workers) % 2 else 0)


@quick
@given(seeds, numbers, worker_sets)
def test_a_derangement_is_a_permutation_without_fixed_points(
    seed: int, number: int, workers: list[int]
) -> None:
    moves = draw_swap("derangement", seed, number, workers)
    if len(workers) < 2:
        assert moves == {}
    else:
        assert sorted(moves) == workers
        assert sorted(moves.values()) == workers
        assert all(giver != taker for giver, taker in moves.items())


@quick
@given(seeds, st.integers(0, 500), st.integers(1, 9), st.integers(30, 60))
def test_nobody_sits_out_twice_in_a_row(seed: int, start: int, half: int, swaps: int) -> None:
    workers = list(range(1, 2 * half + 2))
    alone = [
        sitting_out(draw_swap("pairs", seed, number, workers), workers)
        for number in range(start, start + swaps)
    ]
    assert all(len(one) == 1 for one in alone)
    assert all(one != following for one, following in pairwise(alone))


@quick
@given(seeds, st.integers(0, 50), st.integers(1, 9))
def test_everybody_sits_out_once_a_round(seed: int, round_number: int, half: int) -> None:
    workers = list(range(3, 2 * half + 4))
    n = len(workers)
    alone = [
        sitting_out(draw_swap("pairs", seed, number, workers), workers)[0]
        for number in range(round_number * n, (round_number + 1) * n)
    ]
    assert sorted(alone) == workers


@quick
@given(forms, seeds, numbers, worker_sets)
def test_the_same_arguments_give_the_same_swap_in_any_order(
    form: str, seed: int, number: int, workers: list[int]
) -> None:
    before = torch.get_rng_state()
    first = draw_swap(form, seed, number, workers)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert draw_swap(form, seed, number, list(reversed(workers))) == first


@pytest.mark.parametrize("form", ["pairs", "derangement"])
@pytest.mark.parametrize("num_workers", [3, 4, 7, 10])
def test_seeds_and_swaps_differ(form: str, num_workers: int) -> None:
    workers = list(range(1, num_workers + 1))
    swaps = {
        seed: [draw_swap(form, seed, number, workers) for number in range(30)] for seed in range(3)
    }
    assert swaps[0] != swaps[1] != swaps[2] != swaps[0]
    assert len({tuple(sorted(moves.items())) for moves in swaps[0]}) > 1


def test_every_pair_meets_about_equally_often() -> None:
    workers = [1, 2, 3, 4]
    met = Counter(
        pair for number in range(600) for pair in draw_swap("pairs", 11, number, workers).items()
    )
    assert len(met) == 12
    assert all(150 < count < 250 for count in met.values())  # 200 expected, σ ≈ 12


def test_every_derangement_comes_about_equally_often() -> None:
    met = Counter(
        tuple(sorted(draw_swap("derangement", 11, number, [1, 2, 3, 4]).items()))
        for number in range(900)
    )
    assert len(met) == 9
    assert all(60 < count < 140 for count in met.values())  # 100 expected, σ ≈ 9


SORTED = [[140, 0, 0], [0, 140], [0, 0, 140]]
EVEN = [[50, 45, 45], [45, 50, 45], [45, 45, 50]]
COUNTS = st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=6)


@given(COUNTS)
def test_unevenness_is_half_of_what_workers_with_one_class_differ_by(
    class_counts: list[list[int]],
) -> None:
    table = np.zeros((len(class_counts), 5))
    for row, counts in zip(table, class_counts, strict=True):
        row[: len(counts)] = counts
    table = table[table.sum(1) > 0]
    shares, of_all = table / table.sum(1, keepdims=True), table.sum(0) / max(1, table.sum())
    # The largest difference that any set of classes makes: the sum of what is above.
    distance = np.maximum(shares - of_all, 0).sum(1).mean() if len(table) else 0.0
    half = 0.5 * float(of_all @ (1 - of_all))
    if abs(distance - half) > 1e-9:
        assert are_uneven(class_counts) == (distance > half)


def test_a_site_for_each_of_two_outcomes_is_uneven_however_rare_one_is() -> None:
    assert are_uneven([[100, 0], [0, 100]])
    assert are_uneven([[100, 0], [100, 0], [100, 0], [0, 20]])
    assert not are_uneven([[90, 10], [92, 8], [88, 12]])


@pytest.mark.parametrize(
    ("num_weights", "interval"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (1_460_000, 23)]
)
def test_large_discriminators_are_swapped_less_often(num_weights: int, interval: int) -> None:
    assert interval_for(num_weights) == interval


def test_what_the_user_says_comes_first() -> None:
    settings = MDGANSettings(batch_size=10)
    assert swap_every(settings, 140, EVEN, 1000) == 14
    assert swap_every(settings, 140, SORTED, 1000) == 1
    assert swap_every(settings, 140, SORTED, 10**9) == 14  # never rarer than the paper's
    assert swap_every(MDGANSettings(batch_size=10, swap_epochs=1.0), 140, SORTED, 1000) == 14
    assert swap_every(MDGANSettings(batch_size=10, swap_interval=0), 140, SORTED, 1000) == 0


@pytest.mark.parametrize(
    ("size", "counts", "num_weights", "interval"),
    [
        (140, EVEN, 1000, 14),
        (9000, EVEN, 1000, 25),
        (9000, SORTED, 200_000, 4),
        (9000, SORTED, 10**9, 25),
    ],
)
@claim("means", "every 25 iterations at least.")
def test_means_come_before_discriminators_have_drifted_far(
    size: int, counts: list[list[int]], num_weights: int, interval: int
) -> None:
    settings = MDGANSettings(batch_size=10, swap="means")
    assert swap_every(settings, size, counts, num_weights) == interval
    assert swap_every(settings.but(swap_interval=50), size, counts, num_weights) == 50
    assert swap_every(settings.but(swap_epochs=1.0), size, counts, num_weights) == size // 10


# What a discriminator tells of the last batch: with moments its gradient, exactly.


@pytest.mark.slow
def test_moments_tell_the_last_gradient_and_weights_alone_do_not() -> None:
    settings = make_settings(0)
    assert settings.training.policy("discriminator").betas[0] == 0.5
    seen, guesses = list(islice(steps(settings), 8)), observers(settings)
    exact = leak_of(guesses["two states with moments, one step apart"], seen, digits())
    assert exact.error < 1e-6
    assert exact.part == 1.0
    far = leak_of(guesses["two states of weights, 20 step(s) apart"], seen, digits())
    assert far.error > 0.1
    assert far.part < 0.5
