"""Rules that combine models, against numpy; and weights of sums that hide their parts."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from mdgan.engine.answers import Answers
from mdgan.engine.host_keys import NotMasked
from mdgan.errors import BadInput
from mdgan.families.federated.averaging import combine_models, mean_by_own_weights
from mdgan.families.federated.host import own_weight
from mdgan.families.federated.messages import LEAST_PART, ROUND, UPDATE, check_weights, with_weight
from mdgan.families.federated.round import participant_weights
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.aggregation_form import AggregationRule, parse_robust_rule
from mdgan.gan.exact_sum import PartialSum, average, weighted_sum
from mdgan.gan.model_vector import BLOCK, ModelVector
from mdgan.gan.randomness import generator_for
from mdgan.messages import Message
from tests.unit.families.federated.rounds import (
    E,
    RoundStage,
    generator_of,
    make_models,
    mean_of,
    models_of,
)

Array = NDArray[np.float64]
MakeRounds = Callable[..., RoundStage]

VECTOR = ModelVector(nn.Linear(40, 40), nn.BatchNorm1d(700))
"""Three blocks of weights, two of BatchNorm's statistics, one of its count."""
NUM_WEIGHTS = 3 * BLOCK
RULES = ["median", "trimmed-mean:1", "trimmed-mean:2", "krum:1", "krum:2", "clip:1"]


def sent_and_back(seed: int, num_workers: int) -> tuple[Tensor, dict[int, Tensor]]:
    """Models, and what honest workers make of them."""
    generator = generator_for(seed, "models")
    sent = torch.randn(VECTOR.shape, generator=generator)
    changes = torch.randn(num_workers, *VECTOR.shape, generator=generator) / 16
    return sent, {n + 1: sent + change for n, change in enumerate(changes)}


def combined(
    rule: AggregationRule, sent: Tensor, back: Mapping[int, Tensor], *, as_differences: bool = False
) -> Tensor:
    answers = Answers(dict(back))
    weights = dict.fromkeys(back, 1 / len(back))
    return combine_models(
        rule, sent, answers, weights, VECTOR.num_weight_blocks, as_differences=as_differences
    )


def median(rows: Array) -> Array:
    return np.asarray(np.median(rows, axis=0))


def trimmed(rows: Array, num_hostile: int) -> Array:
    return np.asarray(np.sort(rows, axis=0)[num_hostile : len(rows) - num_hostile].mean(0))


def krum(rows: Array, num_hostile: int) -> Array:
    """Multi-Krum (Blanchard et al. 2017), the mean of the m − F with the least scores."""
    squares = ((rows[:, None] - rows[None, :]) ** 2).sum(2)
    np.fill_diagonal(squares, np.inf)
    scores = np.sort(squares, axis=1)[:, : len(rows) - num_hostile - 2].sum(1)
    return np.asarray(rows[np.argsort(scores)[: len(rows) - num_hostile]].mean(0))


def clipped(rows: Array, factor: float) -> Array:
    norms = np.sqrt((rows**2).sum(1))
    limit = factor * np.median(norms)
    return np.asarray((rows * np.minimum(1, limit / norms)[:, None]).mean(0))


def reference(rule: AggregationRule, sent: Tensor, back: Mapping[int, Tensor]) -> Array:
    """The rule on weights and the median of buffers, written apart from torch."""
    rows = np.stack([(back[n].double() - sent.double()).flatten().numpy() for n in sorted(back)])
    of_rule = {
        "median": lambda: median(rows[:, :NUM_WEIGHTS]),
        "trimmed-mean": lambda: trimmed(rows[:, :NUM_WEIGHTS], int(rule.parameter)),
        "krum": lambda: krum(rows[:, :NUM_WEIGHTS], int(rule.parameter)),
        "clip": lambda: clipped(rows[:, :NUM_WEIGHTS], rule.parameter),
    }
    change = np.concatenate([of_rule[rule.name](), median(rows[:, NUM_WEIGHTS:])])
    return np.asarray(sent.double().flatten().numpy() + change)


@given(st.integers(0, 2**32), st.integers(7, 9), st.sampled_from(RULES), st.booleans())
def test_models_are_combined_as_the_rule_says(
    seed: int, num_workers: int, text: str, as_differences: bool
) -> None:
    rule = parse_robust_rule(text)
    sent, back = sent_and_back(seed, num_workers)
    travel = {n: models - sent for n, models in back.items()} if as_differences else back
    combination = combined(rule, sent, travel, as_differences=as_differences)
    assert combination.dtype == torch.float64
    wanted = reference(rule, sent, back)
    np.testing.assert_allclose(combination.flatten().numpy(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("text", RULES)
def test_two_answers_have_a_mean_alone(text: str) -> None:
    sent, back = sent_and_back(0, 2)
    combination = combined(parse_robust_rule(text), sent, back)
    assert torch.equal(combination, average(back, [], dict.fromkeys(back, 0.5)))


# ----- rounds


def test_a_liar_is_outvoted_in_a_round(rounds: MakeRounds) -> None:
    made = rounds(num_workers=5, iterations=E, aggregation="krum:1")
    one, many = made.begin_with((1,), (2, 3, 4, 5))
    begin, last = make_models().vector.read(), models_of(9, E)
    honest = {n: begin.lerp(last, 0.1 + 0.01 * n) for n in (2, 3, 4, 5)}
    one.answer_round(E, {1: -100 * last})
    order = many.take(ROUND, E)
    answer = many.answer_to(order, honest)
    assert answer.fields["summed"] == [], "every model travels"
    many.send(answer)
    made.finished(one, many)
    wanted = mean_of({n: (0.25, models) for n, models in honest.items()})
    torch.testing.assert_close(generator_of(made.vector()), generator_of(wanted), rtol=0, atol=1e-6)


def test_a_sum_is_refused_where_models_are_compared(rounds: MakeRounds) -> None:
    """It could hide a lie among honest answers."""
    made = rounds(num_workers=4, iterations=E, aggregation="median", strikes=1)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    for host in hosts[1:]:
        host.answer_round(E, {host.workers[0]: models_of(2, E)})
    answer = hosts[0].answer_to(hosts[0].take(ROUND, E))
    forged = {
        "losses": answer.tensors["losses"],
        "sums.values": answer.tensors["answers.values"].double(),
    }
    hosts[0].send(Message(UPDATE, E, {"workers": [1], "summed": [[1]]}, forged))
    made.finished(*hosts[1:])
    torch.testing.assert_close(made.vector(), models_of(2, E), rtol=0, atol=1e-6)


# ----- what is refused


@pytest.mark.parametrize(
    ("given_settings", "reason"),
    [
        ({"aggregation": "f2u"}, "--aggregation f2u: not one of mean, median, trimmed-mean:F"),
        ({"aggregation": "krum"}, "--aggregation krum: not one of mean, median"),
        ({"aggregation": "krum:0"}, "--aggregation krum:0: F must be at least 1"),
        ({"world_size": 5, "aggregation": "krum:1"}, "at least 5 workers a round to outvote 1"),
        (
            {"world_size": 21, "participation": 0.1, "aggregation": "median"},
            "needs at least 3 workers a round to outvote 1, not 2; use more (--world-size, ",
        ),
        ({"world_size": 8, "aggregation": "clip:2", "weighting": "samples"}, "one vote"),
    ],
)
def test_what_cannot_work_is_refused(given_settings: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        FederatedSettings.read({"algorithm": "fl-gan", **given_settings})
    assert reason in str(caught.value)


# ----- weights in a sum that hides its parts

OF_EACH = {1: [1, 2], 3: [3], 4: [4], 5: [5], 6: [6], 7: [7]}


def even(**changed: float) -> dict[int, float]:
    return dict.fromkeys(range(1, 8), 1.0) | {int(name[1:]): w for name, w in changed.items()}


def test_weights_that_differ_a_little_will_do() -> None:
    check_weights(3, OF_EACH, 3, weights=even(), uniform=True)
    check_weights(3, OF_EACH, 3, weights=even(w3=1.9), uniform=False)
    check_weights(3, OF_EACH, 3, weights=even(w3=1.01), uniform=False)
    few, more = ({n: [n] for n in range(1, last + 1)} for last in (3, 5))
    check_weights(1, few, 3, weights={1: 0.34, 2: 0.33, 3: 0.33}, uniform=False)
    check_weights(1, more, 5, weights=dict.fromkeys(more, 0.2), uniform=True)


@pytest.mark.parametrize(
    ("weights", "least", "why"),
    [
        (even(w3=1.01), 3, "it gives workers different weights"),
        (even(w3=100.0), 3, "rank 3 has 96% of the weight of a sum"),
        (even(w3=5.0), 3, "rank 3 has 56% of the weight of a sum"),
        (even(w3=2.0), 5, "insists on 5 hosts gives less than 25%"),
        # Those with all weight but this host's may drop out.
        (even(w1=0.0, w2=0.0, w4=0.0, w5=0.0, w6=0.0), 3, "rank 3 has 100% of the weight"),
        (dict.fromkeys(range(1, 8), 0.0), 3, "rank 3 has 0% of the weight"),
        (even(w3=float("nan")), 3, "weights that are none"),
        (even(w4=-1.0), 3, "weights that are none"),
        (even(w99=9.0), 3, "to workers that no host of the sum has"),
    ],
)
def test_a_sum_of_one_workers_answer_is_refused(
    weights: dict[int, float], least: int, why: str
) -> None:
    uniform = why.startswith("it gives workers different")
    with pytest.raises(NotMasked, match=why):
        check_weights(3, OF_EACH, least, weights=weights, uniform=uniform)


# ----- weights that clients keep to themselves


@given(st.lists(st.floats(LEAST_PART, 1.0), min_size=3, max_size=12), st.integers(0, 99))
def test_their_mean_is_that_of_weights_in_the_clear_but_for_rounding(
    parts: list[float], seed: int
) -> None:
    """Both round each addend to 2⁻⁴⁴, here before it is divided by Σ v, at least LEAST_PART."""
    _, back = sent_and_back(seed, len(parts))
    told = dict.fromkeys(back, 1 / len(back))
    changes = {n: told[n] * part for n, part in zip(back, parts, strict=True)}
    total = weighted_sum({n: with_weight(models) for n, models in back.items()}, changes)
    result = mean_by_own_weights([PartialSum(tuple(back), total)], told)
    exact = sum(changes[n] * models.double() for n, models in back.items()) / sum(changes.values())
    most = len(parts) * 2.0**-45 / LEAST_PART
    torch.testing.assert_close(result, exact, rtol=2.0**-40, atol=2 * most)


def test_weights_that_clients_may_lower_count_as_low_for_the_others() -> None:
    told = dict.fromkeys(range(1, 5), 1.0)
    hosts = {n: [n] for n in told}
    for least, part in ((3, LEAST_PART), (4, LEAST_PART), (4, 1.0)):
        check_weights(1, hosts, least, weights=told, uniform=False, least_part=part)
    five = {**hosts, 5: [5]}
    check_weights(1, five, 5, weights={**told, 5: 1.0}, uniform=False)
    with pytest.raises(NotMasked, match="insists on 5 hosts gives less than 25%"):
        check_weights(1, five, 5, weights={**told, 5: 1.0}, uniform=False, least_part=LEAST_PART)


def test_a_client_weighs_itself_as_the_server_would_if_it_knew() -> None:
    held = {1: [8, 8, 0], 2: [16], 3: [0, 0, 4]}
    in_the_clear = participant_weights("kl", held, held, {})
    changes = {n: own_weight(1.0, counts, [24, 8, 4]) for n, counts in held.items()}
    for n in held:
        assert changes[n] / sum(changes.values()) == pytest.approx(in_the_clear[n], rel=1e-15)
    for counts in ([0, 0, 0, 7], [90], []):  # one that has come since
        assert LEAST_PART <= own_weight(1.0, counts, [24, 8, 4]) <= 1.0
