"""Hosts of slots that lie or send nonsense, and a lying server, harm only themselves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.host.protocol import OutOfTurn
from mdgan.families.federated import messages
from mdgan.families.federated.averaging import combine_models
from mdgan.families.federated.concurrency import SlotCount
from mdgan.families.federated.host import PlacedHost
from mdgan.families.federated.messages import (
    ROUND,
    TRAINED,
    ClientTask,
    Load,
    read_offer,
    read_order,
    read_report,
)
from mdgan.families.federated.settings import MOST_SLOTS
from mdgan.families.federated.slots import Slots
from mdgan.gan.aggregation_form import parse_robust_rule
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from tests.marks import examples
from tests.unit.families.federated.placing import PlacingStage, mean_over
from tests.unit.families.federated.rounds import SHAPE, E, make_models, models_of
from tests.unit.gan import small

MakePlaced = Callable[..., PlacingStage]
Fields = dict[str, Any]
ALL = (1, 2, 3, 4, 5, 6)


# ----- what hosts tell of a round

MALFORMED: dict[str, Callable[[Fields], Any]] = {
    "empty": lambda _: {},
    "other clients": lambda told: {**told, "trained": [{**told["trained"][0], "client": 1}]},
    "too few": lambda told: {**told, "trained": told["trained"][:1]},
    "twice": lambda told: {**told, "trained": told["trained"] * 2},
    "a slot too high": lambda told: first(told, slot=MOST_SLOTS),
    "a slot that was not asked": lambda told: first(told, slot=1),
    "NaN seconds": lambda told: first(told, seconds=float("nan")),
    "no slots": lambda told: {**told, "offer": []},
}


def first(told: Fields, **values: Any) -> Fields:
    """What a host tells, with other values for its first client."""
    one, *others = told["trained"]
    return {**told, "trained": [{**one, **values}, *others]}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_account_costs_the_host_its_link(placing: MakePlaced, name: str) -> None:
    made = placing(num_workers=2, iterations=E)
    one, bad = made.begin_slots(2)
    order, clients = bad.take_round(E)
    told = bad.account_of(order)
    bad.answer_with(order, message=Message(TRAINED, E, MALFORMED[name](dict(told.fields))))
    assert "TRAINED message makes no sense" in made.wait_for_event("lost")["reason"]
    made.round_is_done_by(one, clients)
    assert made.has_become(mean_over(E, ALL))


def test_an_account_before_any_round_costs_the_host_its_link(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=E)
    one, bad = made.play(1), made.play(2)
    bad.send(Message(TRAINED, E, {"trained": [], "offer": ["x"]}))
    made.begin(one, bad.ready())
    made.wait_for_event("lost")
    made.finished(made.play(2).ready(), one)
    assert made.has_become(mean_over(E, ALL))


def test_a_sum_without_an_account_is_of_no_use(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=E)
    one, bad = made.begin_slots(2)
    order, clients = bad.take_round(E)
    bad.send(bad.sum_of(order))
    made.round_is_done_by(one, clients, bad)
    assert made.has_become(mean_over(E, ALL))


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e300])
def test_losses_that_are_no_numbers_do_no_harm(placing: MakePlaced, loss: float) -> None:
    made = placing(num_workers=1, iterations=E)
    (host,) = made.begin_slots(1)
    order, _ = host.take_round(E)
    told = first(dict(host.account_of(order).fields), losses=[loss, 0.0])
    host.answer_with(order, message=Message(TRAINED, E, told))
    made.finished(host)
    assert made.has_become(mean_over(E, ALL))
    assert made.metrics()[-1]["discriminator_loss"] == 0.5, "the mean of the others"


# ----- every client's models, for rules that outvote liars


def combined(iteration: int, clients: Sequence[int]) -> Tensor:
    """The median of these clients' models after a round, and after all clients' before."""
    sent = make_models().vector.read() if iteration == E else combined(iteration - E, ALL)
    answers = Answers({n: models_of(n, iteration) for n in clients})
    median = parse_robust_rule("median")
    vector = make_models().vector
    return combine_models(
        median, sent, answers, {}, vector.num_weight_blocks, as_differences=False
    ).float()


PACKETS: dict[str, Callable[[Message], Message]] = {
    "NaN": lambda m: replace(m, tensors={"models": m.tensors["models"] * float("nan")}),
    "shape": lambda m: replace(m, tensors={"models": torch.zeros(3)}),
    "other client": lambda m: replace(m, fields={"client": 1}),
    "no client": lambda m: replace(m, fields={"client": [4]}),
}


@pytest.mark.parametrize("name", PACKETS)
def test_models_that_cannot_be_used_cost_the_host_its_link(placing: MakePlaced, name: str) -> None:
    made = placing(num_workers=2, iterations=2 * E, aggregation="median")
    one, bad = made.begin_slots(2)
    one.gives_all = True
    order, clients = bad.take_round(E)
    bad.send(PACKETS[name](bad.models_of(order, clients[0])))
    made.wait_for_event("lost")
    made.round_is_done_by(one, clients)
    assert made.has_become(combined(2 * E, ALL))


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_models_of_some_clients_are_not_enough(placing: MakePlaced, sent: int) -> None:
    made = placing(num_workers=2, iterations=E, aggregation="median")
    one, bad = made.begin_slots(2)
    one.gives_all = True
    order, clients = bad.take_round(E)
    for client in clients[:sent]:
        bad.send(bad.models_of(order, client))
    bad.answer_with(order)
    assert "models of all" in made.wait_for_event("lost")["reason"]
    made.round_is_done_by(one, clients)
    assert made.has_become(combined(E, ALL))


def test_absurd_models_of_one_client_are_left_out(placing: MakePlaced) -> None:
    made = placing(num_workers=1, iterations=E, aggregation="median")
    (host,) = made.begin_slots(1)
    order, clients = host.take_round(E)
    for client in clients:
        host.send(host.models_of(order, client, scale=1e6 if client == 3 else 1.0))
    host.answer_with(order)
    made.finished(host)
    assert made.has_become(combined(E, [1, 2, 4, 5, 6]))


# ----- what hosts offer when they arrive

TOLD: dict[str, Any] = {
    "a list": [1],
    "no offer": {"offer": None},
    "too many": {"offer": ["x"] * (MOST_SLOTS + 1)},
    "long": {"offer": ["x" * 121]},
    "colours": {"offer": ["\x1b[31mred"]},
}


@pytest.mark.parametrize("name", TOLD)
def test_a_host_that_offers_nonsense_is_let_go(placing: MakePlaced, name: str) -> None:
    made = placing(num_workers=1, iterations=E)
    one = made.play(1)
    made.begin(one)
    one.take(ROUND, E)
    bad = made.play(2).says(TOLD[name])
    made.wait_for_event("lost" if not isinstance(TOLD[name], dict) else "joined")
    one.die()
    made.wait_for_event("lost", 2)
    again = made.play(1).arrive()
    assert again.answer_round(E) == list(ALL)
    made.finished(again)
    assert bad.lost()
    assert made.has_become(mean_over(E, ALL))


# ----- what a server sends


def order_of(**changes: Any) -> Message:
    """A ROUND message with other fields or tensors."""
    tasks = [[ClientTask(n, Load(2, 3), 0.5) for n in (1, 2)]]
    asked = messages.order(changes.pop("iteration", E), torch.zeros(SHAPE), tasks)
    tensors = changes.pop("tensors", asked.tensors)
    return Message(ROUND, asked.iteration, {**asked.fields, **changes}, tensors)


NONSENSE: dict[str, Mapping[str, Any]] = {
    "no lists": {"lists": None},
    "client 0": {"lists": [[[0, 2, 3, 0.5]]]},
    "client 7": {"lists": [[[7, 2, 3, 0.5]]]},
    "twice": {"lists": [[[1, 2, 3, 0.5]], [[1, 2, 3, 0.5]]]},
    "negative iterations": {"lists": [[[1, -2, 3, 0.5]]]},
    "NaN weight": {"lists": [[[1, 2, 3, float("nan")]]]},
    "too many lists": {"lists": [[]] * (MOST_SLOTS + 1)},
    "no models": {"tensors": {}},
    "whole numbers": {"tensors": {"models": torch.zeros(SHAPE, dtype=torch.int64)}},
    "iteration": {"iteration": -1},
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_server_that_sends_nonsense_ends_the_host_with_a_line(name: str) -> None:
    def train(*_: object) -> Any:
        raise AssertionError("nothing is to be trained")

    count = SlotCount(1, small.CPU, "a test")
    host = PlacedHost(4, Slots(SHAPE, lambda _: train), count, 6, Tracer())
    with pytest.raises(OutOfTurn, match=r"^its ROUND message makes no sense .*$"):
        host.handlers()[ROUND](order_of(**NONSENSE[name]), None)  # type: ignore[arg-type] # unused


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)  # a task has four
        | st.dictionaries(st.sampled_from(["trained", "offer", "client", "slot", "lists"]), inner)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=examples(24))
@given(json_values)
def test_anything_else_is_refused_in_one_way(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_order(order_of(lists=[[value]]), SHAPE, 6)
    with pytest.raises(ValueError, match=r"."):
        read_report(Message(TRAINED, E, {"trained": value, "offer": value}))
    assert all(isinstance(kind, str) for kind in read_offer({"offer": value}))
