"""Who takes part in a round: FeGAN's queue against a search without one."""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.engine.settings import num_participants
from mdgan.families.federated.fegan import (
    BalancedSampling,
    RandomSampling,
    Sampling,
    divergence,
    new_sampling,
)
from tests.unit.families.federated.client_tables import Table, partition_table, square, tables

quick = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**63 - 1)
rounds = st.integers(0, 10_000)
fractions = st.floats(0.01, 1.0)

FIGURE_3 = {1: [0, 8, 0, 8], 2: [5, 0, 5, 0], 3: [6, 0, 6, 0], 4: [0, 6, 0, 6]}
"""50 samples of 4 classes on 4 clients: client 1 has most, clients 2 and 3 what it lacks."""


def play(sampling: Sampling, table: Table, num_rounds: int, start: int = 0) -> list[list[int]]:
    chosen = []
    for number in range(start, start + num_rounds):
        chosen.append(sampling.choose(number, table))
        sampling.took_part(number, chosen[-1])
    return chosen


def seen_of_each(table: Table, chosen: Sequence[Sequence[int]]) -> list[int]:
    """Samples of each class of all rounds together."""
    places = {n: place for place, n in enumerate(table)}
    taken = [places[n] for members in chosen for n in members]
    return list(square(table)[taken].sum(axis=0).tolist())


@quick
@given(fractions, st.integers(0, 500))
def test_the_number_of_participants_is_the_nearest_but_at_least_one(
    fraction: float, num_clients: int
) -> None:
    number = num_participants(fraction, num_clients)
    assert min(1, num_clients) <= number <= num_clients
    if number > 1:
        assert abs(number - Fraction(fraction) * num_clients) <= Fraction(1, 2) + Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("fraction", "num_clients", "wanted"),
    [(0.025, 20, 1), (0.025, 80, 2), (0.5, 5, 2), (0.5, 7, 4), (1.0, 9, 9), (0.1, 0, 0)],
)
def test_numbers_of_participants(fraction: float, num_clients: int, wanted: int) -> None:
    assert num_participants(fraction, num_clients) == wanted


@quick
@given(st.sampled_from(["random", "balanced"]), tables, fractions, seeds, rounds)
def test_the_chosen_are_live_sorted_nobody_twice_and_again_the_same(
    name: str, table: Table, fraction: float, seed: int, number: int
) -> None:
    sampling = new_sampling(name, fraction, seed)
    before = torch.get_rng_state()
    chosen = sampling.choose(number, table)
    assert torch.equal(before, torch.get_rng_state())
    assert chosen == sorted(set(chosen))
    wanted = num_participants(fraction, len(table))
    if name == "random":
        assert set(chosen) <= table.keys()
    else:  # who holds nothing has nothing to contribute to the balance
        wanted = min(wanted, sum(map(any, table.values())))
        assert set(chosen) <= {n for n, row in table.items() if any(row)}
    assert len(chosen) == wanted
    assert sampling.choose(number, dict(reversed(table.items()))) == chosen


@pytest.mark.parametrize("name", ["random", "balanced"])
def test_without_clients_nobody_is_chosen(name: str) -> None:
    assert new_sampling(name, 0.5, 0).choose(0, {}) == []


@quick
@given(st.sampled_from(["random", "balanced"]), st.lists(tables, min_size=2, max_size=8), seeds)
def test_from_its_state_it_goes_on_as_it_would_have(
    name: str, changing: list[Table], seed: int
) -> None:
    whole, broken = new_sampling(name, 0.3, seed), new_sampling(name, 0.3, seed)
    for number, table in enumerate(changing):  # clients come, go, and change their data
        again = new_sampling(name, 0.3, seed)
        again.load_state(broken.state())
        broken = again
        chosen = whole.choose(number, table)
        assert broken.choose(number, table) == chosen
        whole.took_part(number, chosen)
        broken.took_part(number, chosen)
    assert {t.dtype for t in broken.state().values()} <= {torch.int64}


def test_random_clients_take_part_equally_often_and_rounds_differ() -> None:
    table = {n: [1] for n in range(1, 11)}
    chosen = play(RandomSampling(0.3, 5), table, 1000)
    often = Counter(n for members in chosen for n in members)
    assert all(240 < often[n] < 360 for n in table)  # 300 expected, σ ≈ 14
    assert chosen != play(RandomSampling(0.3, 6), table, 1000)


def test_random_choices_ignore_the_past_and_what_clients_hold() -> None:
    fresh, old = RandomSampling(0.4, 3), RandomSampling(0.4, 3)
    play(old, partition_table("fegan:3,60", 0), 7)
    assert fresh.choose(7, partition_table("fegan:3,60", 1)) == old.choose(
        7, partition_table("fegan:3,60", 2)
    )


def reference(
    table: Table, accumulated: Counter[int], last_seen: dict[int, int], wanted: int
) -> list[int]:
    """Section 3.3 without a queue, rationals instead of entropies where those are compared."""
    accumulated = Counter(accumulated)
    chosen: list[int] = []
    while len(chosen) < wanted:
        free = {n: row for n, row in table.items() if n not in chosen}
        held = {x for row in free.values() for x, count in enumerate(row) if count}
        if not held:
            break
        fewest = min(accumulated[x] for x in held)
        least = {x for x in held if accumulated[x] == fewest}
        able = [n for n, row in free.items() if {x for x in range(len(row)) if row[x]} & least]
        longest_ago = min(last_seen.get(n, -1) for n in able)
        able = [n for n in able if last_seen.get(n, -1) == longest_ago]
        most = max(sum(table[n]) for n in able)
        able = [n for n in able if sum(table[n]) == most]
        # With equal sums n, entropy = log n − log(∏ xᵢ^xᵢ)/n: the smallest product of integers.
        smallest = min(product_of_powers(table[n]) for n in able)
        chosen.append(min(n for n in able if product_of_powers(table[n]) == smallest))
        accumulated.update(dict(enumerate(table[chosen[-1]])))
    return sorted(chosen)


def product_of_powers(counts: Sequence[int]) -> int:
    product = 1
    for count in counts:
        product *= count**count
    return product


small_tables = st.dictionaries(
    st.integers(1, 30), st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=8
)


@quick
@given(st.lists(small_tables, min_size=1, max_size=6), fractions, st.data())
def test_balanced_choices_are_those_of_a_plain_search(
    changing: list[Table], fraction: float, data: st.DataObject
) -> None:
    sampling = BalancedSampling(fraction)
    accumulated: Counter[int] = Counter()
    last_seen: dict[int, int] = {}
    for number, table in enumerate(changing):
        chosen = sampling.choose(number, table)
        wanted = num_participants(fraction, len(table))
        assert chosen == reference(table, accumulated, last_seen, wanted)
        present = [n for n in chosen if data.draw(st.booleans(), label=f"{n} answered")]
        sampling.took_part(number, present)
        for n in present:
            accumulated.update(dict(enumerate(table[n])))
            last_seen[n] = number


def test_the_running_example_of_figure_3() -> None:
    sampling = BalancedSampling(0.5)
    assert sum(map(sum, FIGURE_3.values())) == 50
    assert play(sampling, FIGURE_3, 2) == [[1, 3], [2, 4]]
    state = sampling.state()
    assert state["accumulated"].tolist() == [11, 14, 11, 14]
    assert dict(zip(state["clients"].tolist(), state["last_seen"].tolist(), strict=True)) == {
        1: 0,
        2: 1,
        3: 0,
        4: 1,
    }


@quick
@given(small_tables, st.permutations(range(4)), fractions)
def test_how_classes_are_numbered_does_not_matter(
    table: Table, order: list[int], fraction: float
) -> None:
    padded = {n: [*row, *[0] * (4 - len(row))] for n, row in table.items()}
    renamed = {n: [row[x] for x in order] for n, row in padded.items()}
    assert play(BalancedSampling(fraction), padded, 6) == play(
        BalancedSampling(fraction), renamed, 6
    )


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({1: [5, 5], 2: [6, 5]}, 2),  # more samples
        ({1: [9, 1], 2: [5, 5]}, 2),  # more balanced
        ({1: [4, 0, 6], 2: [6, 4]}, 1),  # equally balanced: the lowest number
    ],
)
def test_preferences_among_clients_not_seen_yet(table: Table, wanted: int) -> None:
    assert BalancedSampling(0.5).choose(0, table) == [wanted]


def test_only_who_took_part_counts_as_seen() -> None:
    sampling = BalancedSampling(0.25)
    table = {1: [9, 9], 2: [8, 8], 3: [7, 7], 4: [6, 6]}
    assert sampling.choose(0, table) == [1]
    sampling.took_part(0, [])
    assert sampling.state()["accumulated"].tolist() == []
    assert sampling.choose(1, table) == [1]
    sampling.took_part(1, [1, 3])  # the latter still answers an earlier call
    assert sampling.state()["accumulated"].tolist() == [16, 16]
    assert sampling.choose(2, table) == [2]
    del table[2]
    assert sampling.choose(2, table) == [4]


@quick
@given(st.data(), fractions)
def test_everybody_is_seen_where_no_class_is_held_beside_a_rarer_one(
    data: st.DataObject, fraction: float
) -> None:
    """Groups of clients that hold the same classes, and no other group's: each has its turns."""
    table: Table = {}
    for group in range(data.draw(st.integers(1, 3))):
        for _ in range(data.draw(st.integers(1, 4))):
            row = [0] * 6
            row[2 * group : 2 * group + 2] = data.draw(
                st.tuples(st.integers(1, 5), st.integers(1, 5))
            )
            table[len(table) + 1] = row
    # A group's classes fall behind for at most as long as the largest counts, 5, need.
    chosen = play(BalancedSampling(fraction), table, 60 * len(table))
    assert {n for members in chosen for n in members} == table.keys()


@pytest.mark.parametrize(("num_clients", "at_once"), [(7, 1), (8, 2), (9, 3), (5, 5)])
def test_clients_of_equal_standing_take_turns(num_clients: int, at_once: int) -> None:
    table = {n: [2, 2] for n in range(1, num_clients + 1)}
    chosen = play(BalancedSampling(at_once / num_clients), table, 5 * num_clients // at_once)
    often = Counter(n for members in chosen for n in members)
    assert often == dict.fromkeys(table, 5)


def test_a_rare_class_comes_before_fairness() -> None:
    table = {1: [1, 50], 2: [0, 50], 3: [0, 50]}
    assert play(BalancedSampling(0.3), table, 20) == [[1]] * 20
    assert play(BalancedSampling(0.67), table, 4) == [[1, 2], [1, 3], [1, 2], [1, 3]]


@pytest.mark.parametrize("num_rounds", [10, 40, 100])
def test_the_least_seen_class_is_seen_more_than_by_chance(num_rounds: int) -> None:
    least: dict[str, list[int]] = {"random": [], "balanced": []}
    for seed in range(12):
        table = partition_table("fegan:3,60", seed)
        held = np.flatnonzero(square(table).sum(axis=0))  # the scheme leaves some classes out
        for name, found in least.items():
            chosen = play(new_sampling(name, 0.1, seed), table, num_rounds)
            found.append(min(seen_of_each(table, chosen)[x] for x in held))
    assert np.mean(least["balanced"]) > 1.5 * np.mean(least["random"])


def test_what_it_saw_is_nearer_to_all_data_than_by_chance() -> None:
    """Figure 10, on classes of which each client holds a few."""
    apart: dict[str, list[float]] = {"random": [], "balanced": []}
    for seed in range(8):
        table = partition_table("classes:2", seed)
        total = square(table).sum(axis=0).tolist()
        for name, found in apart.items():
            chosen = play(new_sampling(name, 0.1, seed), table, 15)
            found.append(divergence(seen_of_each(table, chosen), total))
    assert np.mean(apart["balanced"]) < 0.5 * np.mean(apart["random"])


Damage = Callable[[dict[str, torch.Tensor]], object]


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        (lambda s: s.pop("clients"), KeyError, "clients"),
        (lambda s: s.update(more=torch.zeros(1)), KeyError, "more"),
        (lambda s: s.update(accumulated=torch.zeros(4)), RuntimeError, "accumulated"),
        (lambda s: s.update(accumulated=-torch.ones(4).long()), RuntimeError, "accumulated"),
        (lambda s: s.update(last_seen=torch.tensor(3)), RuntimeError, "last_seen"),
        (lambda s: s.update(last_seen=torch.tensor([1])), RuntimeError, "belong"),
        (lambda s: s.update(clients=torch.tensor([1, 2, 2, 4])), RuntimeError, "belong"),
    ],
)
def test_a_state_that_is_none_changes_nothing(
    damage: Damage, error: type[Exception], says: str
) -> None:
    sampling = BalancedSampling(0.5)
    play(sampling, FIGURE_3, 3)
    state = sampling.state()
    before = {name: tensor.tolist() for name, tensor in state.items()}
    damage(state)
    with pytest.raises(error, match=says):
        sampling.load_state(state)
    assert {name: tensor.tolist() for name, tensor in sampling.state().items()} == before


def test_random_sampling_takes_no_state_of_balanced() -> None:
    sampling = BalancedSampling(0.5)
    with pytest.raises(KeyError, match="accumulated"):
        RandomSampling(0.5, 0).load_state(sampling.state())
