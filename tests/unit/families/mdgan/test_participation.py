from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.host.loop import Host
from mdgan.engine.settings import num_participants
from mdgan.families.mdgan.messages import BATCHES
from mdgan.families.mdgan.swaps import Moves, draw_swap
from mdgan.families.mdgan.variants.holders import Holders
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator_learner import Stage as Span
from mdgan.gan.labels import Samples
from tests.marks import examples
from tests.unit.families.mdgan.played import Played, answer_of, generator_after
from tests.unit.families.mdgan.stage import Stage, make_worker, same_state
from tests.unit.gan.small import same_bits

seeds = st.integers(0, 2**63 - 1)
fractions = st.floats(0, 1, exclude_min=True, exclude_max=True)
worker_sets = st.sets(st.integers(1, 60), min_size=1, max_size=20)
histories = st.lists(worker_sets, min_size=1, max_size=8)
forms = st.sampled_from(["pairs", "derangement"])
quick = settings(deadline=None, max_examples=examples(16))


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


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.6), (0.6, 0.3)])
def test_resumed_with_more_or_fewer_most_holders_stay(before: float, after: float) -> None:
    workers = set(range(1, 11))
    holders, resumed = Holders(before, 0), Holders(after, 0)
    old = chosen(holders, workers)
    resumed.load_state(holders.state())
    now = chosen(resumed, workers)
    assert old < now or now < old
    assert len(now) == 10 * after
    assert chosen(resumed, now) == now, "later, who is there is kept even if others leave"


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


# Over the whole protocol.


MakeStage = Callable[..., Stage]
DEADLINE = 1.0
LAYOUTS = {"a host per worker": ((1,), (2,), (3,), (4,), (5,)), "one host": ((1, 2, 3, 4, 5),)}


def first_holders(fraction: float, num_workers: int, seed: int = 0) -> list[int]:
    """Who begins, in increasing order; there are more workers than discriminators."""
    chosen = Holders(fraction, seed).among(range(1, num_workers + 1))
    assert chosen is not None
    assert len(chosen) < num_workers
    return sorted(chosen)


def split(hosts: list[Played], holders: list[int]) -> tuple[list[Played], list[Played]]:
    """Those that hold a discriminator, and the others."""
    having = [host for host in hosts if host.number in holders]
    return having, [host for host in hosts if host.number not in holders]


# Who trains.


def test_only_holders_get_batches(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=3, participation=0.5)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    made.finished(*hosts)
    holders = first_holders(0.5, 4)
    having, idle = split(hosts, holders)
    assert [host.iterations() for host in having] == [[1, 2, 3]] * 2
    assert [host.iterations() for host in idle] == [[], []]
    assert made.has_learnt(generator_after([holders] * 3))
    assert [record["workers"] for record in made.metrics()] == [2, 2, 2]
    answered = made.events("attendance")[0]["workers"]
    assert answered == {str(n): {"answered": 3} for n in holders}


@pytest.mark.parametrize(("participation", "kappa"), [(1.0, 4), (0.5, 3), (0.25, 2), (0.01, 2)])
def test_kappa_is_that_of_those_who_train(
    stage: MakeStage, participation: float, kappa: int
) -> None:
    made = stage(num_workers=16, iterations=1, participation=participation)
    (host,) = made.begin_with(tuple(range(1, 17)))
    fields = host.answer(1).fields
    judge, train = fields["judge"], fields["train"]
    assert len({*judge.values(), *train.values()}) == kappa
    assert len(judge) == max(1, round(16 * participation))
    made.finished(host)


# Swaps: discriminators wander.


def play(made: Stage, groups: tuple[tuple[int, ...], ...]) -> tuple[dict[int, Worker], Any]:
    """A run of real hosts; returns its workers, and who trained in which iteration."""
    workers = {n: make_worker(n) for group in groups for n in group}
    trained: defaultdict[int, set[int]] = defaultdict(set)
    carriers: dict[int, Host] = {}

    def watch(rank: int, worker: Worker) -> None:
        learn = worker.learn

        def watched(fake: Samples, span: Span) -> Tensor:
            trained[carriers[rank]._tracer.iteration].add(rank)
            return learn(fake, span)

        worker.learn = watched  # type: ignore[method-assign, assignment] # of this one alone

    for rank, worker in workers.items():
        watch(rank, worker)
    for group in groups:
        carriers.update(dict.fromkeys(group, made.host({n: workers[n] for n in group})))
    made.begin()
    made.finished()
    return workers, trained


def moves_of(event: dict[str, Any]) -> Moves:
    return dict(event["moves"])


@pytest.mark.parametrize(("form", "stale"), [("pairs", 0), ("derangement", 1)])
def test_discriminators_wander_and_arrive_bit_for_bit(
    stage: MakeStage, form: str, stale: int
) -> None:
    left: list[list[dict[str, Tensor]]] = []
    settings = {"participation": 0.4, "swap_interval": 1 + stale, "swap": form, "stale": stale}
    for groups in LAYOUTS.values():
        made = stage(num_workers=5, iterations=16, **settings)
        workers, trained = play(made, groups)
        events = sorted(made.events("swap"), key=lambda event: int(event["iteration"]))
        assert [e["iteration"] for e in events] == list(range(1 + stale, 16, 1 + stale))
        holders = set(first_holders(0.4, 5))
        for event in events:
            moves, i = moves_of(event), event["iteration"]
            assert trained[i] == holders, "only who has a discriminator trains"
            assert moves.keys() <= holders
            assert event["exact"] is True
            assert event["given"].keys() == {str(giver) for giver in moves}
            assert event["taken"].keys() == {str(taker) for taker in moves.values()}
            assert all(event["taken"][str(t)] == event["given"][str(g)] for g, t in moves.items())
            holders = {moves.get(worker, worker) for worker in holders}
        assert trained[16] == holders
        assert any(moves_of(e).keys() - set(moves_of(e).values()) for e in events), (
            "nobody gave all"
        )
        assert {n for ranks in trained.values() for n in ranks} == {1, 2, 3, 4, 5}
        left.append([made.learner.state(), *(workers[n].state() for n in sorted(workers))])
    for other in left[1:]:
        assert all(same_state(one, same) for one, same in zip(left[0], other, strict=True))


# Losses.


def test_an_idle_worker_takes_over_from_one_that_was_lost(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=3, participation=0.5)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    having, idle = split(hosts, first_holders(0.5, 4))
    stays, lost = having
    lost.take(BATCHES, 1)
    lost.die()
    stays.answer(1)
    made.finished(stays, *idle)
    (heir,) = (host for host in idle if host.iterations())
    assert heir.iterations() == stays.iterations()[1:] == [2, 3]
    both = sorted([stays.number, heir.number])
    arguments = [sorted([stays.number, lost.number]), both, both]
    assert made.has_learnt(generator_after([[stays.number], both, both], arguments))


def test_who_joins_is_idle_until_more_are_wanted(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=3, participation=0.5)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    having, _ = split(hosts, first_holders(0.5, 4))
    having[0].answer(1)
    having[1].take(BATCHES, 1)
    fifth, sixth = made.play(5).ready(), made.play(6).ready()
    made.wait_for_event("joined", 2)
    having[1].send(answer_of(having[1].number, 1))
    everybody = [*hosts, fifth, sixth]
    made.finished(*everybody)
    assert [record["workers"] for record in made.metrics()] == [2, 3, 3]
    assert all(host.iterations() == [1, 2, 3] for host in having)


# Deadlines, and batches sent ahead.


def test_workers_that_were_not_asked_keep_nobody_waiting(stage: MakeStage) -> None:
    """The first host is late with one holder; its two idle workers do not count for a quorum."""
    groups = ((1, 2, 3), (4,), (5,), (6,), (7,), (8,), (9,))

    def one_is_in_the_first_host(seed: int) -> bool:
        return sum(n <= 3 for n in first_holders(0.34, 9, seed)) == 1

    seed = next(filter(one_is_in_the_first_host, range(1000)))
    settings = {"participation": 0.34, "deadline": (DEADLINE, 0.0), "quorum": 0.3, "seed": seed}
    made = stage(num_workers=9, iterations=3, **settings)
    first, *others = made.begin_with(*groups)
    prompt, slow = split(others, first_holders(0.34, 9, seed))[0]
    first.take(BATCHES, 1)
    prompt.answer(1)
    slow.answer(1)
    slow.take(BATCHES, 2)
    prompt.answer(2)
    prompt.answer(3)
    made.finished(*(host for host in others if host is not slow))
    assert [event["iteration"] for event in made.events("late")][:2] == [1, 2]
