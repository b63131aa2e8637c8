"""A real host, whose server is played by the test."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.host.loop import HostFailed, ServerLost
from mdgan.errors import BadInput, Interrupted
from mdgan.messages import Kind, Message
from mdgan.privacy.budget import Spent
from mdgan.privacy.spending import Spending
from mdgan.storage.checkpoints import worker_file
from mdgan.storage.state_file import write_state
from mdgan.transport.base import Joined, Lost, Received
from tests.toy_family import ANSWER
from tests.unit.engine.learners import Learner, make_worker, same_state
from tests.unit.engine.played import COPIED, LONG, copied
from tests.unit.engine.played_server import PlayedServer, change_by, question, rows, unreadable


def test_it_arrives_answers_and_ends(server: PlayedServer) -> None:
    workers = {1: make_worker(1), 2: make_worker(2)}
    ready = server.arrives(workers)
    assert (ready.iteration, ready.fields["holds"]) == (0, [1, 2])
    reference = {1: make_worker(1), 2: make_worker(2)}
    for i in (1, 2):
        server.send(question(i, *workers))
        feedback = server.take(ANSWER)
        assert (feedback.iteration, feedback.fields["workers"]) == (i, [1, 2])
        for row, worker in zip(rows(feedback), reference.values(), strict=True):
            assert torch.equal(row, change_by(worker))
    assert server.stop() is None
    assert server.waited == [LONG]


@pytest.mark.parametrize(
    ("reason", "shut_out", "kind"),
    [
        ("", False, type(None)),
        ("the server failed", False, Interrupted),
        ("rank 1 is shut out: NaN", True, HostFailed),
    ],
)
def test_it_ends_as_it_is_told(
    server: PlayedServer, reason: str, shut_out: bool, kind: type[object]
) -> None:
    server.arrives({1: make_worker(1)})
    error = server.stop(reason, shut_out=shut_out)
    assert type(error) is kind
    assert error is None or str(error) == reason


def test_refused_at_first_it_says_so(server: PlayedServer) -> None:
    server.refuses = "start every rank with the same settings"
    server.starts({1: make_worker(1)})
    error = server.actor.over()
    assert isinstance(error, BadInput)
    assert "start every rank with the same settings" in str(error)


def test_a_sample_that_cannot_be_read_is_its_own_failure(server: PlayedServer) -> None:
    worker = make_worker(1)
    worker.before_step = unreadable
    server.arrives({1: worker})
    server.send(question(1, 1))
    error = server.actor.over()
    assert isinstance(error, HostFailed)
    assert str(error) == "7.png: cannot be read"
    assert [type(event) for event in events(server)][-1] is Lost


def events(server: PlayedServer) -> list[object]:
    results: list[object] = []
    while (event := server.network.server.receive(0.0)) is not None:
        results.append(event)
    return results


def test_cut_off_it_comes_back_as_itself(server: PlayedServer) -> None:
    workers, reference = {1: make_worker(1)}, make_worker(1)
    server.arrives(workers)
    server.send(question(1, *workers))
    server.take(ANSWER)
    change_by(reference)
    server.welcome |= {"iteration": 1, "generation": 2, "checkpoint": {"iteration": 0, "files": {}}}
    server.cut()
    ready = server.take(Kind.READY)
    assert ready.fields["holds"] == [1]
    first, second = server.hellos
    assert first["key"]
    assert second == {**first, "generation": 1}
    server.send(question(2, *workers))
    assert torch.equal(rows(server.take(ANSWER))[0], change_by(reference))
    server.cut()
    server.take(Kind.READY)
    assert server.hellos[-1]["generation"] == 2
    assert server.stop() is None


def test_it_gives_up_when_no_server_comes(server: PlayedServer) -> None:
    server.arrives({1: make_worker(1)}, patience=7.0)
    server.refuses = "no server is here"
    server.cut()
    error = server.actor.over()
    assert isinstance(error, ServerLost)
    assert "the cable is cut" in str(error)
    assert "no server is here" in str(error)
    assert server.waited == [LONG, 7.0]


def test_without_patience_it_ends_at_once(server: PlayedServer) -> None:
    server.arrives({1: make_worker(1)}, patience=0.0)
    server.cut()
    error = server.actor.over()
    assert isinstance(error, ServerLost)
    assert str(error) == "the server is gone: the cable is cut"
    assert len(server.waited) == 1


@pytest.mark.parametrize("wants_states", [False, True])
def test_asked_to_stop_it_answers_and_leaves(server: PlayedServer, wants_states: bool) -> None:
    server.welcome["wants_states"] = server.to_server = wants_states
    workers = {1: make_worker(1), 2: make_worker(2)}
    server.arrives(workers)
    server.send(question(3, *workers))
    server.host.interrupt()
    server.take(ANSWER)
    if wants_states:
        message = server.take(Kind.STATE)
        assert message.fields["purpose"] == "leave"
        states = messages.by_worker(message)
        assert all(same_state(states[rank], workers[rank].state()) for rank in workers)
    assert server.take(Kind.LEAVE).iteration == 3
    assert isinstance(server.actor.over(), Interrupted)


def test_asked_to_stop_it_says_exactly_what_was_spent(server: PlayedServer) -> None:
    budget = SimpleNamespace(
        canaries=None, close=lambda: None, spent=lambda *, exactly: Spent(7.0 if exactly else 1, 9)
    )
    server.arrives({1: make_worker(1)})
    reports = server.host.reports
    server.host.reports = replace(reports, spending=Spending({1: cast(Any, budget)}))
    server.host.interrupt()
    heard: list[Message] = []
    while not heard or heard[-1].kind != Kind.LEAVE:
        event = server.network.server.receive(LONG)
        assert isinstance(event, Received)
        heard.append(event.message)
    assert heard[-2].fields["epsilon"] == {"1": 7.0}


def test_asked_to_stop_without_a_server_it_leaves_the_next(server: PlayedServer) -> None:
    looking, comes = threading.Event(), threading.Event()
    server.arrives({1: make_worker(1)})

    def look() -> None:
        looking.set()
        assert comes.wait(LONG)

    server.before_connect = look
    server.cut()
    assert looking.wait(LONG)
    server.host.interrupt()
    comes.set()
    server.take(Kind.READY)
    server.take(Kind.LEAVE)
    assert isinstance(server.actor.over(), Interrupted)


def test_asked_to_stop_when_the_link_breaks_it_does_not_look_for_another(
    server: PlayedServer,
) -> None:
    server.arrives({1: make_worker(1)})
    server.host._stopping.set()
    server.cut()
    assert isinstance(server.actor.over(), Interrupted)
    assert len(server.waited) == 1


def model_of(worker: Learner) -> dict[str, Tensor]:
    return {name: t for name, t in worker.state().items() if name.startswith(COPIED)}


def test_a_successor_takes_over_everything(server: PlayedServer) -> None:
    server.welcome["iteration"] = 7
    worker = make_worker(3)
    server.arrives({3: worker})
    given = make_worker(3, model_seed=5)
    given.step()
    server.send(messages.adopt(8, {3: given.state()}))
    assert server.take(Kind.READY).fields["holds"] == [3]
    assert server.stop() is None
    assert same_state(worker.state(), given.state())


def test_nothing_is_given_and_it_goes_on_as_it_is(server: PlayedServer) -> None:
    server.welcome["iteration"] = 7
    worker = make_worker(3)
    server.arrives({3: worker})
    server.send(messages.adopt(8, {}))
    assert server.take(Kind.READY).fields["holds"] == [3]
    assert server.stop() is None
    assert same_state(worker.state(), make_worker(3).state())


WRONG_STATES: list[dict[str, Tensor]] = [
    {"model.weight": torch.zeros(3)},
    {name: t for name, t in copied().items() if name != "model.bias"},
    {**copied(), "model.something": torch.zeros(3)},
    {"bias": torch.zeros(3)},
    {"": torch.zeros(3)},
]


@pytest.mark.parametrize("wrong", WRONG_STATES, ids=range(len(WRONG_STATES)))
def test_what_does_not_fit_is_not_taken_over(
    server: PlayedServer, wrong: dict[str, Tensor]
) -> None:
    server.welcome["iteration"] = 7
    workers = {3: make_worker(3), 4: make_worker(4)}
    server.arrives(workers)
    server.send(messages.adopt(8, {3: wrong, 4: copied(5)}))
    assert server.take(Kind.READY).fields["holds"] == [4]
    server.send(messages.adopt(8, {3: copied(6)}))
    assert server.take(Kind.READY).fields["holds"] == [3, 4]
    assert server.stop() is None
    assert same_state(model_of(workers[3]), copied(6))
    assert same_state(model_of(workers[4]), copied(5))


def test_it_finds_its_own_files_of_the_last_checkpoint(server: PlayedServer) -> None:
    given = make_worker(3, model_seed=5)
    given.step()
    stored = write_state(server.folder / "0000006", worker_file(3), given.state())
    files = {"3": stored.as_record()}
    server.welcome |= {"iteration": 7, "checkpoint": {"iteration": 6, "files": files}}
    workers = {3: make_worker(3), 4: make_worker(4)}
    assert server.arrives(workers).fields["holds"] == [3]
    assert server.stop() is None
    assert same_state(workers[3].state(), given.state())


def test_a_checkpoint_is_of_the_moment_it_was_ordered(server: PlayedServer) -> None:
    workers, reference = {1: make_worker(1)}, make_worker(1)
    server.to_server = True
    server.arrives(workers)
    server.send(question(1, *workers))
    server.send(messages.checkpoint(1, [], to_server=True))
    server.send(question(2, *workers))
    server.take(ANSWER)
    change_by(reference)
    kinds = [server.take(Kind.STATE), server.take(ANSWER)]
    assert same_state(messages.by_worker(kinds[0])[1], reference.state())
    assert server.stop() is None
    assert not [event for event in events(server) if isinstance(event, Joined)]
