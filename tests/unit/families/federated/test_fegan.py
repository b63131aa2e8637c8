"""FeGAN's scores and weights, against scipy."""

from math import e, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.families.federated.fegan import (
    divergence,
    divergence_scores,
    missing_classes,
    participant_weights,
)
from tests.unit.families.federated.client_tables import Table, square, tables

STATS: Any = pytest.importorskip("scipy.stats")
SPECIAL: Any = pytest.importorskip("scipy.special")

quick = settings(deadline=None, max_examples=60)
inhabited = tables.filter(lambda table: any(map(any, table.values())))


@quick
@given(inhabited)
def test_scores_are_divergences_times_the_share_of_samples(table: Table) -> None:
    counts = square(table)
    scores = divergence_scores(table)
    assert scores.keys() == table.keys()
    for client, held in zip(table, counts, strict=True):
        kl = STATS.entropy(held, counts.sum(axis=0)) if held.any() else 0.0
        wanted = held.sum() / counts.sum() * kl
        assert scores[client] == pytest.approx(wanted, abs=1e-12)
        assert 0 <= scores[client] <= 1 / e


@quick
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 50))
def test_the_same_distribution_does_not_diverge_however_many_samples(
    counts: list[int], times: int
) -> None:
    assert divergence(counts, [count * times for count in counts]) == pytest.approx(0, abs=1e-15)


def test_a_class_that_the_total_lacks_is_infinitely_far() -> None:
    assert divergence([3, 1], [3]) == inf
    assert divergence([3, 1], [3, 0, 5]) == inf
    assert divergence([3], [3, 0, 5]) == pytest.approx(np.log(8 / 3))


def test_no_samples_diverge_from_nothing() -> None:
    assert divergence([], [1, 2]) == divergence([0, 0], [1, 2]) == divergence([], []) == 0
    assert divergence_scores({1: [0, 0], 2: []}) == {1: 0, 2: 0}
    assert divergence_scores({}) == {}


@quick
@given(inhabited, st.data())
def test_kl_weights_are_scipys_softmax_times_the_loads(table: Table, data: st.DataObject) -> None:
    participants = sorted(data.draw(st.sets(st.sampled_from(sorted(table)), min_size=1)))
    loads = {n: data.draw(st.floats(0.1, 1)) for n in participants}
    scores = divergence_scores(table)  # of all, also of those that do not take part
    softmax = SPECIAL.softmax([-scores[n] for n in participants])
    weights = participant_weights("kl", participants, table, loads)
    assert list(weights) == participants
    for n, part in zip(participants, softmax, strict=True):
        assert weights[n] > 0
        assert weights[n] == pytest.approx(part * loads[n])
    unloaded = participant_weights("kl", participants, table, {})
    assert sum(unloaded.values()) == pytest.approx(1)


@quick
@given(tables)
def test_uniform_weights_are_one_whatever_the_loads(table: Table) -> None:
    weights = participant_weights("uniform", table, {}, dict.fromkeys(table, 0.3))
    assert weights == dict.fromkeys(table, 1)
    assert {type(weight) for weight in weights.values()} == {float}


def test_samples_weigh_as_in_federated_averaging() -> None:
    table = {1: [3, 4], 2: [], 3: [1]}
    assert participant_weights("samples", [3, 2, 1], table, {1: 0.5}) == {1: 7, 2: 0, 3: 1}


@pytest.mark.parametrize(
    ("rule", "table", "loads", "lacking"),
    [("samples", {1: [0], 2: []}, {}, "samples"), ("kl", {1: [1], 2: [2]}, {1: 0, 2: 0}, "load")],
)
def test_weights_that_are_all_zero_are_refused(
    rule: str, table: Table, loads: dict[int, float], lacking: str
) -> None:
    with pytest.raises(BadInput, match=rf"--weighting {rule}.*\[1, 2\] has {lacking}; use"):
        participant_weights(rule, table, table, loads)


@quick
@given(tables)
def test_missing_classes_are_those_that_nobody_holds(table: Table) -> None:
    assert missing_classes(table) == np.flatnonzero(square(table).sum(axis=0) == 0).tolist()
