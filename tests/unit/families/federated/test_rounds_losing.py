"""Clients that send rubbish, nothing, or are gone: the others go on with their round."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.families.federated.messages import ROUND, UPDATE
from mdgan.messages import Kind, Message
from tests.unit.families.federated.rounds import E, PlayedClients, RoundStage, mean_of, models_of
from tests.unit.gan.small import same_bits

MakeRounds = Callable[..., RoundStage]
ALONE = ((1,), (2,), (3,))


def thirds(iteration: int, *workers: int) -> Tensor:
    """The mean if just these have answered, all of one weight."""
    return mean_of({n: (1 / 3, models_of(n, iteration)) for n in workers})


def broken(value: float) -> Tensor:
    vector = models_of(3, E)
    vector[0, 5] = value
    return vector


WRONG = {
    "Inf": (broken(float("-inf")), "NaN or Inf"),
    "other models": (torch.zeros(4, 1024), "shape"),
    "float64": (models_of(3, E).double(), "torch.float64"),
    "absurd": (1e6 * models_of(3, E), "times the usual"),
}


def answer_with(host: PlayedClients, vector: Tensor, iteration: int) -> None:
    """Answers a round with something instead of models."""
    host.take(ROUND, iteration)
    tensors = {"losses": torch.zeros(1, 2), "answers.values": vector[None]}
    host.send(Message(UPDATE, iteration, {"workers": [3], "summed": []}, tensors))


@pytest.mark.parametrize("name", WRONG)
def test_models_that_cannot_be_used_are_left_out(rounds: MakeRounds, name: str) -> None:
    vector, reason = WRONG[name]
    made = rounds(num_workers=3, iterations=2 * E)
    hosts = made.begin_playing(*ALONE)
    for host in hosts[:2]:
        host.answer_round(E)
    answer_with(hosts[2], vector, E)
    order = hosts[0].take(ROUND, 2 * E)
    assert same_bits(order.tensors["models"], thirds(E, 1, 2))
    hosts[0].send(hosts[0].answer_to(order))
    for host in hosts[1:]:
        host.answer_round(2 * E)
    made.finished(*hosts)
    assert made.has_become(thirds(2 * E, 1, 2, 3))
    (refused,) = made.events("refused")
    assert (refused["worker"], refused["strikes"]) == (3, 1)
    assert reason in refused["reason"]
    first, second = made.events("round")
    assert (first["asked"], first["took_part"], first["weights"]) == ([1, 2, 3], [1, 2], [0.5] * 2)
    assert second["took_part"] == [1, 2, 3]


# ----- losses


def test_a_newcomer_takes_part_from_the_next_round(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=2 * E)
    one, two = made.begin_playing((1,), (2,))
    for host in (one, two):
        host.take(ROUND, E)
    newcomer = made.play(3)
    assert newcomer.welcome["iteration"] == E
    newcomer.lacks_everything()
    assert newcomer.take(Kind.ADOPT).tensors == {}, "the server's models are all that it needs"
    newcomer.ready()
    made.wait_for_event("joined")
    for host in (one, two):
        host.send(host.answer_to(host.seen[-1]))
    order = newcomer.answer_round(2 * E)
    first = mean_of({n: (0.5, models_of(n, E)) for n in (1, 2)})
    assert same_bits(order.tensors["models"], first)
    made.finished(one, two, newcomer)
    assert "COPY" not in one.told() + two.told()
    assert made.has_become(thirds(2 * E, 1, 2, 3))


CLAIMS: list[dict[str, Any]] = [
    {"class_counts": {"2": []}, "num_samples": {"2": 0}},
    {"class_counts": {"2": [0, 0]}, "num_samples": {"2": 0}},
]


@pytest.mark.parametrize("claims", CLAIMS, ids=str)
@pytest.mark.parametrize("weighting", ["uniform", "samples", "kl"])
def test_a_client_that_claims_to_hold_nothing_does_no_harm(
    rounds: MakeRounds, weighting: str, claims: dict[str, Any]
) -> None:
    made = rounds(num_workers=2, iterations=2 * E, weighting=weighting)
    hosts = [made.play(1), made.play(2, **claims)]
    made.begin(*hosts)
    made.finished(*hosts)
    asked = [1] if weighting == "samples" else [1, 2]
    assert [event["asked"] for event in made.events("round")] == [asked] * 2
    assert made.vector().isfinite().all()


def test_nobody_holds_anything_by_which_to_weigh(rounds: MakeRounds) -> None:
    made = rounds(num_workers=1, iterations=2 * E, weighting="samples")
    host = made.play(1, **{"class_counts": {"1": []}, "num_samples": {"1": 0}})
    made.begin(host)
    reason = host.take(Kind.STOP).fields["reason"]
    error = made.over()
    assert isinstance(error, BadInput)
    assert "--weighting samples: all weights are zero" in reason
    assert reason == str(error)
