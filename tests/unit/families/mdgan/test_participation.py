from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.engine.settings import num_participants
from mdgan.families.mdgan.server_swaps import Holders, draw_swap
from tests.unit.gan.small import same_bits

seeds = st.integers(0, 2**63 - 1)
fractions = st.floats(0, 1, exclude_min=True, exclude_max=True)
worker_sets = st.sets(st.integers(1, 60), min_size=1, max_size=20)
histories = st.lists(worker_sets, min_size=1, max_size=8)
forms = st.sampled_from(["pairs", "derangement"])
quick = settings(deadline=None, max_examples=40)


def chosen(holders: Holders, workers: set[int]) -> set[int]:
    now = holders.among(workers)
    assert now is not None
    assert now == holders.now
    return set(now)


def swap(holders: Holders, form: str, seed: int, number: int, workers: set[int]) -> None:
    """What the server does in a swap."""
    now = holders.now or set()
    moves = draw_swap(form, seed, number, sorted(workers))
    holders.move({giver: taker for giver, taker in moves.items() if giver in now})


@quick
@given(fractions, seeds, worker_sets)
def test_a_fraction_of_the_live_workers_holds(
    fraction: float, seed: int, workers: set[int]
) -> None:
    holders = Holders(fraction, seed)
    first = chosen(holders, workers)
    assert first <= workers
    assert len(first) == num_participants(fraction, len(workers))
    assert chosen(holders, workers) == first, "whoever holds goes on"


@quick
@given(fractions, seeds, histories)
def test_only_the_lost_are_replaced(fraction: float, seed: int, history: list[set[int]]) -> None:
    holders = Holders(fraction, seed)
    before: set[int] = set()
    for live in history:
        now = chosen(holders, live)
        stayed, wanted = before & live, num_participants(fraction, len(live))
        assert stayed <= now <= live
        assert len(now) == max(wanted, len(stayed))
        before = now


@quick
@given(fractions, seeds, histories, histories, forms)
def test_a_state_has_the_same_future(
    fraction: float, seed: int, past: list[set[int]], future: list[set[int]], form: str
) -> None:
    holders, resumed = Holders(fraction, seed), Holders(fraction, seed)
    for number, live in enumerate(past):
        chosen(holders, live)
        swap(holders, form, seed, number, live)
    resumed.load_state(holders.state())
    assert resumed.now == holders.now
    for number, live in enumerate(future, start=len(past)):
        assert chosen(resumed, live) == chosen(holders, live)
        for one in (holders, resumed):
            swap(one, form, seed, number, live)
    state, again = holders.state(), resumed.state()
    assert state.keys() == again.keys()
    assert all(same_bits(state[name], again[name]) for name in state)


def test_before_anybody_was_chosen_there_is_no_state() -> None:
    holders, resumed = Holders(0.5, 3), Holders(0.5, 3)
    assert holders.state() == {}
    resumed.load_state({})
    assert chosen(holders, {1, 2, 3, 4}) == chosen(resumed, {1, 2, 3, 4})


def test_with_1_everybody_holds_and_nothing_is_stored() -> None:
    holders = Holders(1.0, 0)
    for workers in ({1, 2, 3}, {2}, {2, 5, 7}):
        assert holders.among(workers) is None
        holders.move({2: 5, 5: 2})
        assert holders.now is None
        assert holders.state() == {}


def test_resumed_with_1_everybody_holds() -> None:
    before, after = Holders(0.5, 0), Holders(1.0, 0)
    chosen(before, {1, 2, 3, 4})
    after.load_state(before.state())
    assert after.now is None
    assert after.state() == {}


def test_resumed_with_more_the_holders_stay_and_others_come() -> None:
    workers = set(range(1, 11))
    before, after = Holders(0.3, 0), Holders(0.6, 0)
    old = chosen(before, workers)
    after.load_state(before.state())
    assert old < chosen(after, workers)
    assert len(chosen(after, workers)) == 6


def test_resumed_with_fewer_some_of_the_holders_stay() -> None:
    workers = set(range(1, 11))
    before, after = Holders(0.6, 0), Holders(0.3, 0)
    old = chosen(before, workers)
    after.load_state(before.state())
    now = chosen(after, workers)
    assert now < old
    assert len(now) == 3
    assert chosen(after, now) == now, "later, who is there is kept even if others leave"


@pytest.mark.parametrize(
    "state", [{".now": torch.tensor([1])}, {"now": torch.tensor([1]), ".drawn": torch.tensor(1)}]
)
def test_what_is_no_state_changes_nothing(state: dict[str, torch.Tensor]) -> None:
    holders = Holders(0.5, 0)
    before = chosen(holders, {1, 2, 3, 4})
    with pytest.raises(KeyError, match="no state of holders"):
        holders.load_state(state)
    assert holders.now == before


@quick
@given(fractions, seeds, histories)
def test_the_seed_decides_and_nothing_else(
    fraction: float, seed: int, history: list[set[int]]
) -> None:
    before = torch.get_rng_state()
    one, other = Holders(fraction, seed), Holders(fraction, seed)
    first = [chosen(one, live) for live in history]
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert [other.among(sorted(live, reverse=True)) for live in history] == first


@pytest.mark.parametrize("form", ["pairs", "derangement"])
@pytest.mark.parametrize(("num_workers", "fraction"), [(10, 0.3), (6, 0.1)])
def test_discriminators_wander_over_all_shards(
    form: str, num_workers: int, fraction: float
) -> None:
    """Chi-square over looks far enough apart to be as good as independent."""
    workers, every, num_looks = set(range(1, num_workers + 1)), 5, 300
    for seed in (1, 2):
        holders = Holders(fraction, seed)
        count = len(chosen(holders, workers))
        visits: Counter[int] = Counter()
        reached: set[int] = set()
        for number in range(every * num_looks):
            swap(holders, form, seed, number, workers)
            reached |= chosen(holders, workers)
            if number % every == 0:
                visits.update(chosen(holders, workers))
            if number == 20 * num_workers:
                assert reached == workers, "somebody's data was never learnt from"
        expected = num_looks * count / num_workers
        chi_square = sum((visits[n] - expected) ** 2 / expected for n in workers)
        # With 9 degrees of freedom it exceeds 33 once in eight thousand times; drawing several
        # workers at once makes it smaller still.
        assert chi_square < 33, visits
