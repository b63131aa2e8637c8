"""Rounds of clients that take part by chance: who is drawn, what is added up, and the noise."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import comb, inf, nan, sqrt
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.families.federated.host import sent_by
from mdgan.families.federated.poisson_rounds import PoissonRounds, cut, update
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.exact_sum import PartialSum, weighted_sum
from tests.claims.registry import claim
from tests.unit.families.federated.placing import PlacingStage
from tests.unit.families.federated.rounds import E, RoundStage, make_client, make_models
from tests.unit.gan.small import BATCH_SIZE, same_bits

MakeRounds = Callable[..., RoundStage]
POISSON: dict[str, Any] = {"sampling": "poisson"}
ENGINE: Any = SimpleNamespace(
    observer=SimpleNamespace(spent=lambda *_: None), peers=SimpleNamespace(told=dict)
)
BLOCKS, BLOCK = 400, 1024
BOUND: dict[str, Any] = {"dp_unit": "client", "dp_delta": 0.01, **POISSON}
VECTOR = make_models().vector
NOISE: dict[str, Any] = {**BOUND, "dp_noise": 1.5, "dp_clip": 0.25}
BARE: dict[str, Any] = {"dp_unit": "client", "dp_noise": 0.0, **POISSON}
"""Cut updates, and no noise."""


def make(blocks: int = 2, **values: Any) -> PoissonRounds:
    settings = FederatedSettings.read({"world_size": 11, **POISSON, **values})
    made = PoissonRounds(settings, blocks)
    made.begin(100, {}, ENGINE)
    return made


# ----- who takes part


@claim("client", "the server draws clients with probability --participation")
def test_each_client_takes_part_as_often_as_it_should_and_by_itself() -> None:
    made, counts = make(participation=0.3), {n: [7] for n in range(1, 41)}
    seen = torch.zeros(500, 40)
    for number in range(500):
        chosen = made.choose(number, counts)
        assert chosen == made.choose(number, counts), "until the round is over"
        some = {n: [7] for n in range(3, 20)}
        assert made.choose(number, some) == [n for n in chosen if n in some]
        seen[number, [n - 1 for n in chosen]] = 1.0
        made.finish(number, number + 1, chosen, ENGINE)
    # Five deviations: one of these is missed by chance in less than 1 of 10,000 tests.
    for drawn, of in ((seen.sum(), 500 * 40), (seen.sum(0).max(), 500), (seen.sum(0).min(), 500)):
        assert abs(float(drawn) - 0.3 * of) < 5 * sqrt(of * 0.3 * 0.7)
    sizes = seen.sum(1)
    assert float(sizes.var()) == pytest.approx(40 * 0.3 * 0.7, rel=5 * sqrt(2 / 500))
    pairs = comb(40, 2)
    together = float(((seen.T @ seen).sum() - seen.sum()) / 2)
    assert abs(together / (500 * pairs) - 0.09) < 0.01


def test_who_takes_part_is_another_secret_in_each_run() -> None:
    counts = {n: [7] for n in range(1, 41)}
    by_seed = [make(participation=0.5, seed=seed).choose(0, counts) for seed in (0, 0, 1)]
    assert by_seed[0] == by_seed[1] != by_seed[2]


# ----- sums and noise


def answers_of(vectors: Mapping[int, Tensor], weight: float, together: int = 0) -> Answers:
    """Some clients' answers, the first ones added up by their host."""
    first = dict(list(vectors.items())[:together])
    losses = dict.fromkeys(vectors, torch.zeros(2))
    singles = {n: vector for n, vector in vectors.items() if n not in first}
    weights = dict.fromkeys(vectors, weight)
    sums = [PartialSum(tuple(first), weighted_sum(first, weights))] if first else []
    return Answers(singles, sums, losses)


def vectors(count: int) -> dict[int, Tensor]:
    random = torch.Generator().manual_seed(1)
    return {n: torch.randn(3, BLOCK, generator=random) for n in range(1, count + 1)}


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@claim("client", "the server adds noise to the sum")
def test_updates_are_added_up_and_divided_by_the_expected_number(count: int) -> None:
    made, sent, changed = make(participation=0.4), torch.ones(3, BLOCK), vectors(count)
    assert made.weight == 1 / (0.4 * 10)
    shares = dict.fromkeys(changed, made.weight)
    expected = sum((v.double() for v in changed.values()), torch.zeros(3, BLOCK).double()) / 4
    results = [
        made.next_models(sent, answers_of(changed, made.weight, together), shares)
        for together in range(count + 1)
    ]
    for each in results:
        assert torch.equal(each, results[0]), "wherever they are added up"
        assert torch.allclose(each, sent.double() + expected, rtol=0, atol=1e-12)


@claim(
    "client",
    "With --dp-unit client the models would be at most e^ε times as likely or unlikely if any "
    "one client had sent nothing, but for a probability δ.",
)
def test_noise_has_the_deviation_that_is_stated() -> None:
    made = make(BLOCKS, participation=0.5, **NOISE)
    sent = torch.zeros(BLOCKS + 2, BLOCK)
    drawn = []
    for number in range(2):
        result = made.next_models(sent, answers_of({}, made.weight), {})
        assert torch.equal(result, made.next_models(sent, answers_of({}, made.weight), {}))
        assert not result[BLOCKS:].any(), "buffers have none"
        drawn.append(result[:BLOCKS].flatten() / (1.5 * 0.25 / (0.5 * 10)))
        made.finish(number, number + 1, [], ENGINE)
    for noise in drawn:
        # Five deviations of each estimate: missed by chance in 1 of 1,700,000 tests.
        far, count = 5.0, noise.numel()
        assert abs(float(noise.mean())) < far / sqrt(count)
        assert abs(float(noise.square().mean()) - 1) < far * sqrt(2 / count)
        assert abs(float(noise.pow(4).mean()) - 3) < far * sqrt(96 / count)
        share = float((noise.abs() < 1.0).double().mean())
        assert abs(share - 0.682689) < far * sqrt(0.682689 * 0.317311 / count)
    assert abs(float((drawn[0] * drawn[1]).mean())) < 5 / sqrt(drawn[0].numel())


@claim("client", "the server adds noise to the sum")
def test_noise_comes_on_top_of_the_sum_once_and_is_another_for_each_sum() -> None:
    made, without = make(2, **NOISE), make(2, **{**NOISE, "dp_noise": 0.0})
    sent, noises = torch.ones(3, BLOCK), []
    for count in (4, 5):
        answers = [answers_of(vectors(count), made.weight, together) for together in (0, 4)]
        shares = dict.fromkeys(vectors(count), made.weight)
        first, second = (made.next_models(sent, each, shares) for each in answers)
        assert torch.equal(first, second), "wherever updates are added up"
        noises.append(first - without.next_models(sent, answers[0], shares))
    for noise in noises:
        deviation = float(noise[:2].square().mean().sqrt())
        assert deviation == pytest.approx(1.5 * 0.25 / 10, rel=5 * sqrt(0.5 / 2048))
    assert not torch.equal(*noises), "or their difference would tell that of the sums"


# ----- whole rounds


def expected_of(made: RoundStage, num_rounds: int, clip: float, *, num_clients: int = 4) -> Tensor:
    """The server's models, computed here with clients of the same streams."""
    settings = made.settings
    assert isinstance(settings, FederatedSettings)
    models = make_models()
    blocks = models.vector.num_weight_blocks
    twin = PoissonRounds(settings, blocks)
    clients = {n: make_client(n) for n in range(1, num_clients + 1)}
    for number in range(num_rounds):
        begun = models.vector.read()
        total = torch.zeros_like(begun).double()
        chosen = twin.choose(number, {n: [1] for n in clients})
        for client in chosen:
            result, _ = clients[client].train(begun, E, BATCH_SIZE)
            changed = (result - begun).double()
            changed[blocks:] = 0
            norm = float(changed.norm())
            if norm > clip:
                changed = (changed * (clip / norm * (1 - 2**-20))).float().double()
            total += (changed * twin.weight * 2**44).round() / 2**44
        models.vector.write(begun.double() + total)
        twin.finish(number, number + 1, chosen, ENGINE)
    return models.vector.read()


@pytest.mark.parametrize("clip", [0.05, 1e9])
def test_real_clients_train_as_by_hand(rounds: MakeRounds, clip: float) -> None:
    for groups in (((1,), (2, 3, 4)), ((1, 2, 3, 4),)):
        made = rounds(num_workers=4, iterations=4 * E, participation=0.6, **BARE, dp_clip=clip)
        made.begin()
        for ranks in groups:
            made.clients(*ranks)
        made.finished()
        expected = expected_of(made, 4, clip)
        assert torch.allclose(made.vector(), expected, rtol=0, atol=1e-7)
        assert not torch.allclose(made.vector(), make_models().vector.read(), atol=1e-3)


def zeros() -> Tensor:
    return torch.zeros_like(make_models().vector.read())


def some(value: float) -> Tensor:
    vector = zeros()
    vector[0, :100] = value
    return vector


def test_a_client_that_is_lost_adds_nothing_and_the_rest_weighs_the_same(
    rounds: MakeRounds,
) -> None:
    made = rounds(num_workers=3, iterations=2 * E, **POISSON)
    hosts = made.begin_with((1,), (2,), (3,))
    for n, host in enumerate(hosts[:2], start=1):
        host.answer_round(E, {n: some(n)})
    made.cut(3)
    order = hosts[0].take("ROUND", 2 * E)
    expected = make_models().vector.read().double() + some(1.0).double() / 3 + some(2.0) / 3
    assert torch.allclose(order.tensors["models"].double(), expected, atol=1e-6)
    hosts[0].send(hosts[0].answer_to(order, {1: zeros()}))
    hosts[1].answer_round(2 * E, {2: zeros()})
    made.finished(*hosts[:2])
    assert same_bits(made.vector(), order.tensors["models"])


def test_nobody_is_drawn_and_the_round_counts(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=3 * E, participation=1e-9, **NOISE)
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    assert [host.rounds() for host in hosts] == [[], []]
    assert len(made.events("round")) == 3
    spent = [row["epsilon"]["0"] for row in made.events("epsilon")]
    assert len(spent) == 3
    assert not same_bits(made.vector(), make_models().vector.read()), "there was noise"


def test_an_update_that_is_too_long_is_refused_whatever_the_others_are(rounds: MakeRounds) -> None:
    placed = rounds(kind=PlacingStage, num_workers=2, clients=4, iterations=E, **BARE, dp_clip=0.1)
    assert placed.form.most_norm == 0.1
    made = rounds(num_workers=4, iterations=E, **BARE, dp_clip=3.0)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    for host, value in zip(hosts, (1e-6, 1e-6, 0.2999, 0.31), strict=True):
        host.answer_round(E, {host.number: some(value)})
    made.finished(*hosts)
    (refused,) = made.events("refused")
    assert (refused["worker"], refused["reason"]) == (4, "norm 3.1, above 3")
    assert made.events("round")[0]["took_part"] == [1, 2, 3]


# ----- what clients send

ROWS, COLUMNS = 3, 8

values = st.lists(
    st.floats(-1e6, 1e6, width=32), min_size=ROWS * COLUMNS, max_size=ROWS * COLUMNS
).map(lambda found: torch.tensor(found).view(ROWS, COLUMNS))
bounds = st.floats(1e-3, 1e3)


def exact_square(vector: Tensor) -> Fraction:
    """‖x‖², as a fraction."""
    return sum((Fraction(x) ** 2 for x in vector.flatten().tolist()), Fraction(0))


@given(values, bounds)
@claim("client", "clients cut their updates to --dp-clip")
@claim(
    "client",
    "With --dp-unit client the models would be at most e^ε times as likely or unlikely if any "
    "one client had sent nothing, but for a probability δ.",
)
def test_no_update_is_longer_than_the_bound(changed: Tensor, clip: float) -> None:
    result, bound = cut(changed, clip), Fraction(clip) ** 2
    assert exact_square(result) <= bound
    if exact_square(changed) <= bound * (1 - Fraction(1, 2**40)):
        assert torch.equal(result, changed), "a short one stays as it is"


def test_many_threads_cut_as_one_does() -> None:
    changed = torch.randn(999, 1024, generator=torch.Generator().manual_seed(0))
    before, results = torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(cut(changed, 1.0))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert float(results[0].double().norm()) == pytest.approx(1.0, rel=2e-6)


@pytest.mark.parametrize("broken", [nan, inf, -inf])
def test_what_is_broken_counts_as_none(broken: float) -> None:
    changed = torch.zeros(2, 4)
    changed[1, 2] = broken
    for clip in (1.0, inf):
        assert not cut(changed, clip).any()


def test_what_is_sent_follows_from_the_settings() -> None:
    begun, result, losses = VECTOR.read(), make_models(1).vector.read() + 1.0, torch.ones(2)
    blocks = VECTOR.num_weight_blocks
    assert blocks < len(begun), "these models have buffers"
    bare = update(begun, result, blocks, inf)
    assert torch.equal(bare[:blocks], result[:blocks] - begun[:blocks])
    assert not bare[blocks:].any()
    private = {**BOUND, "dp_noise": 1.0, "dp_clip": 0.25, "weighting": "uniform"}
    for flags, vector, told in (
        ({}, result, losses),
        ({"wire": "models=int8"}, result - begun, losses),
        (POISSON, bare, losses),
        (private, cut(bare, 0.25), torch.zeros(2)),
        ({**private, "dp_disclose": "losses"}, cut(bare, 0.25), losses),
    ):
        sent = sent_by(FederatedSettings.read(flags), VECTOR, begun, result, losses)
        assert torch.equal(sent[0], vector)
        assert torch.equal(sent[1], told)
    assert sqrt(exact_square(cut(bare, 0.25))) == pytest.approx(0.25, rel=2e-6)
