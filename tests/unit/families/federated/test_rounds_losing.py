"""Clients send rubbish, send nothing, die or are late: the round is completed or aborted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.families.federated.messages import ROUND, UPDATE
from mdgan.messages import Kind, Message
from tests.unit.engine.played import LONG
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
    hosts = made.begin_with(*ALONE)
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
    one, two = made.begin_with((1,), (2,))
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
    assert "COPY" not in one.message_kinds() + two.message_kinds()
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
    arguments = [1] if weighting == "samples" else [1, 2]
    assert [event["asked"] for event in made.events("round")] == [arguments] * 2
    assert made.vector().isfinite().all()


def test_nobody_holds_anything_by_which_to_weigh(rounds: MakeRounds) -> None:
    made = rounds(num_workers=1, iterations=2 * E, weighting="samples")
    host = made.play(1, **{"class_counts": {"1": []}, "num_samples": {"1": 0}})
    made.begin(host)
    reason = host.take(Kind.STOP).fields["reason"]
    error = made.over()
    assert isinstance(error, BadInput)
    assert "--weighting samples: no participant of" in reason
    assert reason == str(error)


# Late clients.


SOON = (0.15, 0.0)
"""A deadline after which the rest is late, once there is a quorum."""


def equal_mean(iteration: int, *workers: int, of: int = 0) -> Tensor:
    share = 1 / (of or len(workers))
    return mean_of({n: (share, models_of(n, iteration)) for n in workers})


def test_it_is_completed_with_those_who_answered(rounds: MakeRounds) -> None:
    made = rounds(num_workers=3, iterations=2 * E, deadline=SOON, quorum=0.6)
    one, two, slow = made.begin_with(*ALONE)
    for i in (E, 2 * E):
        for host in (one, two):
            host.answer_round(i)
    made.finished(one, two)
    first, second = made.events("round")
    assert (first["asked"], first["took_part"]) == ([1, 2, 3], [1, 2])
    assert (first["weights"], first["aborted"]) == ([0.5, 0.5], False)
    assert second["asked"] == second["took_part"] == [1, 2], "who is busy is not asked"
    assert slow.take(Kind.STOP)
    assert slow.rounds() == [E]
    assert made.has_become(equal_mean(2 * E, 1, 2))
    assert made.events("late")[0]["workers"] == [3]
    assert made.metrics()[0]["workers"] == 2


def test_sampling_counts_only_those_who_took_part(
    rounds: MakeRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Class 1 is not seen as long as rank 2 does not answer."""
    classes = {1: [10, 0], 2: [0, 10], 3: [10, 0], 4: [5, 0], 5: [5, 0]}
    made = rounds(
        num_workers=5,
        iterations=3 * E,
        deadline=(3.0, 0.0),  # within which two hosts answer on a busy machine, too
        participation=0.4,
        sampling="balanced",
        classes=classes,
        checkpoints=E,
    )
    notes: list[list[int]] = []
    monkeypatch.setattr(
        made.saving,
        "order",
        lambda _iteration, _progress, state: notes.append(state["sampling.accumulated"].tolist()),
    )
    one, slow, three, four, five = made.begin_with((1,), (2,), (3,), (4,), (5,))
    late = slow.take(ROUND, E)
    one.answer_round(E)  # alone in time
    three.answer_round(2 * E)
    four.answer_round(2 * E)
    slow.send(slow.answer_to(late))
    made.finished(one, slow, three, four, five)
    first, second, _ = made.events("round")
    assert (first["asked"], first["took_part"]) == ([1, 2], [1])
    assert second["asked"] == second["took_part"] == [3, 4], "rank 1 was seen, rank 2 is busy"
    assert notes[:3] == [[], [10, 0], [25, 0]]


def test_it_is_aborted_and_another_begun(rounds: MakeRounds) -> None:
    made = rounds(num_workers=3, iterations=E, deadline=SOON, quorum=0.6, aborts=True)
    one, two, slow = made.begin_with(*ALONE)
    for host in (one, two):
        host.answer_round(E)
    slow.take(ROUND, E)
    for host in (one, two):
        again = host.answer_round(E)
        assert same_bits(again.tensors["models"], make_models().vector.read()), "nothing is kept"
    made.finished(one, two)
    first, second = made.events("round")
    assert (first["asked"], first["took_part"], first["aborted"]) == ([1, 2, 3], [1, 2], True)
    assert (second["asked"], second["took_part"], second["aborted"]) == ([1, 2], [1, 2], False)
    assert (first["number"], second["number"]) == (0, 1)
    assert [record["iteration"] for record in made.metrics()] == [E]
    assert made.has_become(equal_mean(E, 1, 2))


def test_what_comes_late_to_an_aborted_round_is_not_used_for_the_next(rounds: MakeRounds) -> None:
    """The next round has the same iteration."""
    made = rounds(
        num_workers=3, iterations=2 * E, deadline=(LONG / 20, 0.0), quorum=0.6, aborts=True
    )
    one, two, slow = made.begin_with(*ALONE)
    late = slow.take(ROUND, E)
    for host in (one, two):
        host.answer_round(E)
    for host in (one, two):
        host.take(ROUND, E)  # another round
    slow.send(slow.answer_to(late, {3: models_of(77, E)}))
    made.wait_for_event("back")
    for host in (one, two):
        host.send(host.answer_to(host.seen[-1]))
    order = slow.answer_round(2 * E)
    assert same_bits(order.tensors["models"], equal_mean(E, 1, 2))
    for host in (one, two):
        host.answer_round(2 * E)
    made.finished(one, two, slow)
    events = made.events("round")
    assert [event["aborted"] for event in events] == [True, False, False]
    assert [event["took_part"] for event in events] == [[1, 2], [1, 2], [1, 2, 3]]
    assert made.has_become(equal_mean(2 * E, 1, 2, 3))


def test_an_aborted_round_does_not_count_as_seen(rounds: MakeRounds) -> None:
    classes = {1: [10, 0], 2: [0, 10], 3: [0, 10], 4: [5, 0], 5: [0, 5]}
    made = rounds(
        num_workers=5,
        iterations=E,
        deadline=(2.0, 0.0),  # within which one and three answer on a busy machine, too
        participation=0.4,
        sampling="balanced",
        classes=classes,
        aborts=True,
    )
    one, _slow, three, four, five = made.begin_with((1,), (2,), (3,), (4,), (5,))
    one.answer_round(E)
    one.answer_round(E)
    three.answer_round(E)
    made.finished(one, three, four, five)
    first, second = made.events("round")
    assert (first["asked"], first["aborted"]) == ([1, 2], True)
    assert (second["asked"], second["aborted"]) == ([1, 3], False), "rank 1 is as good as before"


def test_a_loss_aborts_too(rounds: MakeRounds) -> None:
    made = rounds(num_workers=2, iterations=E, aborts=True)
    one, dies = made.begin_with((1,), (2,))
    dies.take(ROUND, E)
    dies.die()
    one.answer_round(E)
    one.answer_round(E)
    made.finished(one)
    assert [event["aborted"] for event in made.events("round")] == [True, False]
    assert made.has_become(models_of(1, E))
