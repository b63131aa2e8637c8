"""FeGAN: scores and weights against scipy, its queue against a search, and counts of clusters."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import e, inf
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.families.federated.averaging import Averaging, BalancedSampling, Sampling, new_sampling
from mdgan.families.federated.clusters import cluster_counts
from mdgan.families.federated.messages import Load
from mdgan.families.federated.round import divergence, divergence_score, participant_weights, sum_of
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.randomness import generator_for
from tests.marks import examples

Table = dict[int, list[int]]
"""Client → samples of each class, of any length."""

tables = st.dictionaries(
    st.integers(1, 99), st.lists(st.integers(0, 60), max_size=6), min_size=1, max_size=12
)


def square(table: Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[clients, classes], in the table's order."""
    most = max(map(len, table.values()))
    return np.array([[*row, *[0] * (most - len(row))] for row in table.values()], dtype=np.int64)


STATS: Any = pytest.importorskip("scipy.stats")
SPECIAL: Any = pytest.importorskip("scipy.special")

quick = settings(deadline=None, max_examples=examples(24))
inhabited = tables.filter(lambda table: any(map(any, table.values())))


def scores_of(table: Table) -> dict[int, float]:
    return {
        client: divergence_score(held, sum_of(table.values())) for client, held in table.items()
    }


@quick
@given(inhabited)
def test_scores_are_divergences_times_the_share_of_samples(table: Table) -> None:
    counts = square(table)
    scores = scores_of(table)
    for client, held in zip(table, counts, strict=True):
        kl = STATS.entropy(held, counts.sum(axis=0)) if held.any() else 0.0
        wanted = held.sum() / counts.sum() * kl
        assert scores[client] == pytest.approx(wanted, abs=1e-12)
        assert 0 <= scores[client] <= 1 / e


def test_a_class_that_the_total_lacks_is_infinitely_far() -> None:
    assert divergence([3, 1], [3]) == inf
    assert divergence([3, 1], [3, 0, 5]) == inf
    assert divergence([3], [3, 0, 5]) == pytest.approx(np.log(8 / 3))


def test_no_samples_diverge_from_nothing() -> None:
    assert divergence([], [1, 2]) == divergence([0, 0], [1, 2]) == divergence([], []) == 0
    assert divergence_score([0, 0], []) == divergence_score([], [0, 0]) == 0


@quick
@given(inhabited, st.data())
def test_kl_weights_are_scipys_softmax_times_the_loads(table: Table, data: st.DataObject) -> None:
    participants = sorted(data.draw(st.sets(st.sampled_from(sorted(table)), min_size=1)))
    loads = {n: data.draw(st.floats(0.1, 1)) for n in participants}
    scores = scores_of(table)  # of all, also of those that do not take part
    softmax = SPECIAL.softmax([-scores[n] for n in participants])
    weights = participant_weights("kl", participants, table, loads)
    assert list(weights) == participants
    for n, part in zip(participants, softmax, strict=True):
        assert weights[n] > 0
        assert weights[n] == pytest.approx(part * loads[n])
    unloaded = participant_weights("kl", participants, table, {})
    assert sum(unloaded.values()) == pytest.approx(1)


def test_samples_weigh_as_in_federated_averaging_and_else_all_the_same() -> None:
    table = {1: [3, 4], 2: [], 3: [1]}
    assert participant_weights("samples", [3, 2, 1], table, {1: 0.5}) == {1: 7, 2: 0, 3: 1}
    assert participant_weights("uniform", [3, 2, 1], {}, {1: 0.5}) == {1: 1, 2: 1, 3: 1}


def test_weights_that_are_all_zero_are_refused() -> None:
    rounds = Averaging(FederatedSettings.read({"weighting": "samples"}), 1)
    table, full = {1: [0], 2: []}, Load(1, 1)
    assert rounds.choose(0, table, 2) == [1, 2]
    with pytest.raises(BadInput, match=r"--weighting samples.*\[1, 2\] has samples; use"):
        rounds.weights([1, 2], dict.fromkeys(table, full), full, table)


# ----- who takes part

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
    chosen = play(Sampling(0.3, 5), table, 1000)
    often = Counter(n for members in chosen for n in members)
    assert all(240 < often[n] < 360 for n in table)  # 300 expected, σ ≈ 14
    assert chosen != play(Sampling(0.3, 6), table, 1000)


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


# Counts of clusters: what a client without labels tells the server.


Method = Literal["kmeans", "gmm"]
METHODS: tuple[Method, ...] = ("kmeans", "gmm")
both = pytest.mark.parametrize("method", METHODS)
SHAPE = (1, 8, 8)


def kinds(*counts: int, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    """So many images around each of some far points, in random order."""
    places = torch.rand(len(counts), *shape, generator=generator_for(9, "places")) * 2 - 1
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    order = torch.randperm(len(labels), generator=generator_for(seed, "order"))
    noise = torch.randn(len(labels), *shape, generator=generator_for(seed, "noise"))
    return places[labels[order]] + 0.02 * noise


@both
def test_clients_that_hold_all_kinds_agree_on_the_order(method: Method) -> None:
    first = cluster_counts([kinds(40, 10, 20, 30)], method, 4, seed=1)
    other = cluster_counts([kinds(9, 14, 19, 24, seed=5)], method, 4, seed=1)
    by_kind = dict(zip(first, other, strict=True))
    assert by_kind == {40: 9, 10: 14, 20: 19, 30: 24}


@both
def test_the_same_images_give_the_same_counts_whatever_the_global_state(method: Method) -> None:
    """Data without groups, where a bit decides to which one some image belongs."""
    images = torch.rand(700, *SHAPE, generator=generator_for(2, "noise"))
    first = cluster_counts([images], method, 10, seed=4)
    torch.manual_seed(123)
    torch.rand(5)
    before = torch.get_rng_state()
    assert cluster_counts([images.clone()], method, 10, seed=4) == first
    assert torch.equal(before, torch.get_rng_state())
    assert len({tuple(cluster_counts([images], method, 10, seed=s)) for s in range(4, 8)}) > 1


@both
def test_pieces_count_as_one(method: Method) -> None:
    images = torch.rand(333, *SHAPE, generator=generator_for(3, "images"))
    pieces = (images[start : start + 10] for start in range(0, len(images), 10))
    assert cluster_counts(pieces, method, 7, seed=0) == cluster_counts([images], method, 7, seed=0)


@settings(deadline=None, max_examples=examples(6))
@given(st.sampled_from(METHODS), st.integers(0, 12), st.integers(1, 6), st.integers(0, 2**63 - 1))
def test_always_k_counts_of_all_images(method: Method, num_images: int, k: int, seed: int) -> None:
    images = torch.rand(num_images, *SHAPE, generator=generator_for(seed, "images"))
    counts = cluster_counts([images], method, k, seed)
    assert len(counts) == k
    assert sum(counts) == num_images
    assert all(count >= 0 for count in counts)
    if method == "kmeans":  # a Gaussian may attract no client
        assert sum(count > 0 for count in counts) == min(k, num_images)
    assert counts == [count for count in counts if count] + [0] * counts.count(0)


@both
def test_equal_images_are_one_cluster(method: Method) -> None:
    image = torch.rand(1, *SHAPE, generator=generator_for(0, "image"))
    assert cluster_counts([image.expand(9, *SHAPE)], method, 4, seed=0) == [9, 0, 0, 0]
    two = torch.cat([image.expand(9, *SHAPE), -image.expand(4, *SHAPE)])
    assert sorted(cluster_counts([two], method, 4, seed=0)) == [0, 0, 4, 9]


def test_no_clusters_are_refused() -> None:
    with pytest.raises(BadInput, match="0 clusters: ask for at least 1"):
        cluster_counts([kinds(3)], "kmeans", 0, seed=0)
