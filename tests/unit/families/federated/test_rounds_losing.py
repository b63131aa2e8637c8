"""Clients that send rubbish, nothing, or are gone: the others go on with their round."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.server.engine import AllWorkersLost
from mdgan.errors import BadInput
from mdgan.families.federated.messages import ROUND, UPDATE
from mdgan.messages import Kind, Message
from tests.unit.families.federated.rounds import (
    E,
    PlayedClients,
    RoundStage,
    make_models,
    mean_of,
    models_of,
)
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


def of_shape(*shape: int) -> Tensor:
    return torch.zeros(shape)


WRONG = {
    "NaN": (broken(float("nan")), "NaN or Inf"),
    "Inf": (broken(float("-inf")), "NaN or Inf"),
    "beyond float32": (broken(3e38) * 1.1, ""),
    "other models": (of_shape(4, 1024), "shape"),
    "smaller models": (of_shape(2, 1024), "shape"),
    "no blocks": (of_shape(3072), "shape"),
    "nothing": (of_shape(0, 1024), "shape"),
    "float64": (models_of(3, E).double(), "torch.float64"),
    "whole numbers": (torch.zeros(3, 1024, dtype=torch.int64), ""),
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


GARBAGE: dict[str, Callable[[Message], Message]] = {
    "empty": lambda m: Message(UPDATE, m.iteration),
    "fields": lambda m: Message(UPDATE, m.iteration, {"workers": "all", "summed": 3}, {}),
    "no losses": lambda m: Message(UPDATE, m.iteration, m.fields, {"x": torch.zeros(3)}),
    "somebody else's": lambda m: Message(
        UPDATE, m.iteration, {**m.fields, "workers": [1]}, m.tensors
    ),
    "everybody's": lambda m: Message(
        UPDATE,
        m.iteration,
        {"workers": [1, 2, 3], "summed": [[1, 2, 3]]},
        {"losses": torch.zeros(3, 2), "sums.values": torch.zeros(1, 3, 1024)},
    ),
    "twice the same": lambda m: Message(
        UPDATE,
        m.iteration,
        {"workers": [3, 3], "summed": []},
        {"losses": torch.zeros(2, 2), "answers.values": torch.zeros(2, 3, 1024)},
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_costs_a_strike_and_speaks_for_nobody_else(rounds: MakeRounds, name: str) -> None:
    made = rounds(num_workers=3, iterations=E)
    hosts = made.begin_playing(*ALONE)
    order = hosts[2].take(ROUND, E)
    hosts[2].send(GARBAGE[name](hosts[2].answer_to(order)))
    made.wait_for_event("refused")
    for host in hosts[:2]:
        host.answer_round(E)
    made.finished(*hosts)
    assert made.has_become(thirds(E, 1, 2))
    assert [event["worker"] for event in made.events("refused")] == [3]


def test_too_many_strikes_and_it_is_out(rounds: MakeRounds) -> None:
    made = rounds(num_workers=3, iterations=4 * E, strikes=2)
    hosts = made.begin_playing(*ALONE)
    for i in (E, 2 * E):
        for host in hosts[:2]:
            host.answer_round(i)
        answer_with(hosts[2], broken(float("nan")), i)
    stop = hosts[2].take(Kind.STOP)
    assert stop.fields["shut_out"]
    made.finished(*hosts[:2])
    assert made.events("shut out")[0]["workers"] == [3]
    assert [event["asked"] for event in made.events("round")] == [[1, 2, 3]] * 2 + [[1, 2]] * 2
    weights = {n: (0.5, models_of(n, 4 * E)) for n in (1, 2)}
    assert made.has_become(mean_of(weights))


def test_one_bad_client_of_a_host_leaves_the_others(rounds: MakeRounds) -> None:
    made = rounds(num_workers=4, iterations=E)
    one, many = made.begin_playing((1,), (2, 3, 4))
    one.answer_round(E)
    many.answer_round(E, {3: broken(float("inf"))})
    made.finished(one, many)
    assert made.events("round")[0]["took_part"] == [1, 2, 4]
    assert made.has_become(mean_of({n: (0.25, models_of(n, E)) for n in (1, 2, 4)}))


def test_a_sum_that_cannot_be_used_costs_each_of_it_a_strike(rounds: MakeRounds) -> None:
    made = rounds(num_workers=4, iterations=E)
    one, many = made.begin_playing((1,), (2, 3, 4))
    one.answer_round(E)
    order = many.take(ROUND, E)
    answer = many.answer_to(order)
    answer.tensors["sums.values"][0, 0, 0] = float("nan")
    many.send(answer)
    made.finished(one, many)
    assert sorted(event["worker"] for event in made.events("refused")) == [2, 3, 4]
    assert made.has_become(models_of(1, E))


def test_nobody_can_be_used_and_the_round_is_tried_again(rounds: MakeRounds) -> None:
    made = rounds(num_workers=1, iterations=E)
    (host,) = made.begin_playing((1,))
    host.answer_round(E, {1: broken(float("nan"))})
    again = host.answer_round(E)
    assert same_bits(again.tensors["models"], make_models().vector.read())
    made.finished(host)
    assert made.has_become(models_of(1, E))
    assert [event["took_part"] for event in made.events("round")] == [[], [1]]
    assert [event["number"] for event in made.events("round")] == [0, 1]


# ----- losses


def test_a_host_that_is_lost_during_a_round(rounds: MakeRounds) -> None:
    made = rounds(num_workers=3, iterations=2 * E)
    hosts = made.begin_playing(*ALONE)
    hosts[2].take(ROUND, E)
    hosts[2].die()
    for i in (E, 2 * E):
        for host in hosts[:2]:
            host.answer_round(i)
    made.finished(*hosts[:2])
    first, second = made.events("round")
    assert (first["asked"], first["took_part"]) == ([1, 2, 3], [1, 2])
    assert second["asked"] == second["took_part"] == [1, 2]
    assert made.events("lost")[0]["workers"] == [3]
    assert made.has_become(mean_of({n: (0.5, models_of(n, 2 * E)) for n in (1, 2)}))


def test_what_it_answered_before_counts(rounds: MakeRounds) -> None:
    made = rounds(num_workers=3, iterations=E)
    hosts = made.begin_playing(*ALONE)
    hosts[2].answer_round(E)
    hosts[2].die()
    made.wait_for_event("lost")
    for host in hosts[:2]:
        host.answer_round(E)
    made.finished(*hosts[:2])
    assert made.has_become(thirds(E, 1, 2, 3))


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


def test_a_real_newcomer(rounds: MakeRounds) -> None:
    made = rounds(num_workers=1, iterations=2 * E)
    (one,) = made.begin_playing((1,))
    one.take(ROUND, E)
    made.clients(2)
    made.wait_for_event("joined")
    one.send(one.answer_to(one.seen[-1]))
    one.answer_round(2 * E)
    made.finished(one)
    assert made.events("round")[1]["took_part"] == [1, 2]


def test_all_of_them_and_nobody_comes(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=3 * E, checkpoints=100, patience=0.2)
    hosts = made.begin_playing((1,), (2,))
    for host in hosts:
        host.answer_round(E)
    for host in hosts:
        host.take(ROUND, 2 * E)
        host.die()
    error = made.over()
    assert isinstance(error, AllWorkersLost)
    assert made.status()["state"] == "failed"
    assert made.status()["iteration"] == E
    manifest = made.checkpoints.newest()[0]
    assert manifest is not None
    assert manifest.iteration == E
    assert made.has_become(mean_of({n: (0.5, models_of(n, E)) for n in (1, 2)}))


def test_all_of_them_and_one_comes_back(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=2 * E)
    hosts = made.begin_playing((1,), (2,))
    for host in hosts:
        host.answer_round(E)
    for host in hosts:
        host.take(ROUND, 2 * E)
        host.die()
    made.wait_for_event("lost", 2)
    again = made.play(1)
    again.lacks_everything()
    again.take(Kind.ADOPT)
    again.ready()
    order = again.answer_round(2 * E)
    assert same_bits(order.tensors["models"], mean_of({n: (0.5, models_of(n, E)) for n in (1, 2)}))
    made.finished(again)
    assert made.has_become(models_of(1, 2 * E))


def test_who_leaves_is_not_asked_any_more(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=2 * E)
    one, two = made.begin_playing((1,), (2,))
    two.take(ROUND, E)
    two.send(messages.leave(E))
    one.answer_round(E)
    made.finished(one)
    assert made.events("left")[0]["workers"] == [2]
    assert made.has_become(models_of(1, 2 * E))


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
