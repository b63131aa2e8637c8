"""When messages may come: rules that a test of one host does not show."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mdgan.engine.host.protocol import OutOfTurn, Protocol, State, Turn
from mdgan.families.federated.host import FederatedHost
from mdgan.families.federated.messages import ROUND
from mdgan.families.mdgan.host import rules_for
from mdgan.families.mdgan.messages import BATCHES, SWAP
from mdgan.messages import Message


def held(rules: Mapping[str, Turn], *sent: tuple[str, int]) -> str:
    """What ends a link on which these messages come while the host trains; empty if nothing."""
    protocol = Protocol(rules, BATCHES)
    protocol.attend({"generation": 1, "iteration": 0})
    try:
        for kind, iteration in sent:
            protocol.check(Message(kind, iteration), State.TRAINS)
    except OutOfTurn as error:
        return str(error)
    return ""


FAST = [(BATCHES, i) for i in (1, 2, 1, *[2] * 98, 3, 2)]


def test_by_arrival_a_fast_worker_is_asked_again_and_often_but_not_for_ever() -> None:
    rules = rules_for(4, by_arrival=True)
    assert not held(rules, *FAST)
    assert "more than 100 of that iteration" in held(rules, *FAST, (BATCHES, 2))
    assert "after BATCHES of iteration 3" in held(rules, *FAST, (BATCHES, 1))
    assert "after SWAP of iteration 3" in held(rules, *FAST, (SWAP, 3), (BATCHES, 3))


def test_a_server_that_takes_over_again_and_again_does_not_ask_for_ever() -> None:
    protocol = Protocol(rules_for(), BATCHES, iterations=1)
    for generation in range(105):
        protocol.attend({"generation": generation, "iteration": 0})
        protocol.check(Message(BATCHES, 1), State.TRAINS)
    protocol.attend({"generation": 105, "iteration": 0})
    with pytest.raises(OutOfTurn, match="than a run of such a length does"):
        protocol.check(Message(BATCHES, 1), State.TRAINS)


@pytest.mark.parametrize(("on_deadline", "most"), [("complete", 100), ("abort", 1000)])
def test_a_round_comes_again_as_often_as_one_can_fail(on_deadline: str, most: int) -> None:
    host: Any = FederatedHost.__new__(FederatedHost)
    rounds = SimpleNamespace(on_deadline=on_deadline)
    host.needs = SimpleNamespace(settings=SimpleNamespace(rounds=rounds), budgets={})
    host.clients, host.classes = {}, {}
    host.__post_init__()
    arguments = [(ROUND, 1)] * most
    rules = {**rules_for(), **host.rules}
    assert not held(rules, *arguments)
    assert f"more than {most} of that iteration" in held(rules, *arguments, (ROUND, 1))


def test_clients_that_begin_anew_train_a_round_again_with_the_same_models_alone() -> None:
    host: Any = FederatedHost.__new__(FederatedHost)
    host._last = 0, b""
    models = torch.ones(2, 2)
    for i, sent in ((1, models), (2, 2 * models), (2, 2 * models)):
        host._check_again(i, sent)
    with pytest.raises(OutOfTurn, match="orders the round of iteration 2 with other models"):
        host._check_again(2, models)
