"""How often discriminators are swapped where the user does not say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.swap_rhythm import are_uneven, interval_for

SORTED = [[140, 0, 0], [0, 140], [0, 0, 140]]
EVEN = [[50, 45, 45], [45, 50, 45], [45, 45, 50]]
COUNTS = st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=6)


def test_sorted_data_are_uneven_and_shuffled_data_are_not() -> None:
    assert are_uneven(SORTED)
    assert not are_uneven(EVEN)
    assert not are_uneven([])
    assert not are_uneven([[], [0, 0]])
    assert not are_uneven([[3, 4]])


@given(COUNTS)
def test_unevenness_is_the_mean_total_variation_distance(class_counts: list[list[int]]) -> None:
    table = np.zeros((len(class_counts), 5))
    for row, counts in zip(table, class_counts, strict=True):
        row[: len(counts)] = counts
    table = table[table.sum(1) > 0]
    shares, of_all = table / table.sum(1, keepdims=True), table.sum(0) / max(1, table.sum())
    # The largest difference that any set of classes makes: the sum of what is above.
    distance = np.maximum(shares - of_all, 0).sum(1).mean() if len(table) else 0.0
    if abs(distance - 0.5) > 1e-9:
        assert are_uneven(class_counts) == (distance > 0.5)


@pytest.mark.parametrize(
    ("num_weights", "interval"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (1_460_000, 23)]
)
def test_large_discriminators_are_swapped_less_often(num_weights: int, interval: int) -> None:
    assert interval_for(num_weights) == interval


def test_what_the_user_says_comes_first() -> None:
    settings = MDGANSettings(batch_size=10)
    assert settings.swap_every(140, EVEN, 1000) == 14
    assert settings.swap_every(140, SORTED, 1000) == 1
    assert settings.swap_every(140, SORTED, 10**9) == 14  # never rarer than the paper's
    assert MDGANSettings(batch_size=10, swap_epochs=1.0).swap_every(140, SORTED, 1000) == 14
    assert MDGANSettings(batch_size=10, swap_interval=0).swap_every(140, SORTED, 1000) == 0
