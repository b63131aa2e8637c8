"""Senseless messages cost their sender its place, and never stop the server."""

from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan import messages
from mdgan.engine.channel import Channel
from mdgan.engine.server.scoring import ScorerLink
from mdgan.messages import Kind, Message
from mdgan.transport.base import Received
from tests.marks import examples
from tests.processes import wait_until
from tests.toy_family import ANSWER, ASK
from tests.unit.engine.learners import make_worker
from tests.unit.engine.played import Played
from tests.unit.engine.stage import Stage

MakeStage = Callable[..., Stage]
thorough = settings(
    deadline=None,
    max_examples=examples(24),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
HONEST, LIAR, TAKER = 1, 2, 3


class FrontDesk:
    """The server's engine without its loop: nothing happens between two calls."""

    def __init__(self, made: Stage) -> None:
        self.made = made
        self.engine = made.engine
        self.honest = made.play(HONEST).ready()
        self.liar = made.play(LIAR).ready()
        self.engine.poll()
        made.peers.begin()
        self.iteration = 0

    def begin_iteration(self) -> None:
        """A newcomer is under way, and the liar is here."""
        self.iteration += 1
        self.engine.at(self.iteration)
        if LIAR not in self.made.peers.hosts():
            self.liar = self.made.play(LIAR).ready()
        self.newcomer = self.made.play(TAKER).lacks_everything()
        self.engine.poll()

    def end_iteration(self) -> None:
        self.newcomer.die()
        self.engine.poll()
        assert self.made.peers.hosts()[HONEST] == [HONEST]

    def send(self, host: Played, message: Message) -> None:
        host.send(message)
        self.engine.poll()


@pytest.fixture
def desk(stage: MakeStage) -> Iterator[FrontDesk]:
    first, second = Pipe()
    usual = {"checkpoints": 1, "iterations": 10**6, "to_server": True, "strikes": 1000}
    yield FrontDesk(stage(**usual, return_seconds=0.0, scorer=ScorerLink(Channel(first))))
    for connection in (first, second):
        connection.close()


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 5)
    | st.floats()
    | st.just(10**400)
    | st.sampled_from(["", "1", "2", "3", "copy", "leave", "checkpoint", "x", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["1", "2", "3", "start", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
tensors: st.SearchStrategy[Tensor] = st.builds(
    lambda shape, dtype, value: torch.full(shape, value).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]),
    st.sampled_from([0.0, 1.0, -1.0, float("nan"), float("inf")]),
)
names = st.sampled_from(
    ["2/model.1.weight", "2/", "/", "", "1/x", "3/x", "x/y", "first.total", "class_histogram"]
)
ROWS = [{"iteration": 1, "start": 0.5, "spans": [["wait", 0, 0, 1, 0]]}]
SENSIBLE: dict[str, tuple[str, dict[str, Any]]] = {
    "spans": (Kind.SPANS, {"rows": ROWS, "sent_bytes": {}, "received_bytes": {}}),
    "real": (Kind.REAL, {"reason": ""}),
    "ready": (Kind.READY, {"holds": [2]}),
    "leave": (Kind.LEAVE, {}),
    "checkpointed": (Kind.CHECKPOINTED, {"workers": [2], "files": {}, "reason": ""}),
    "copy": (Kind.STATE, {"purpose": "copy", "taker": 3}),
    "checkpoint": (Kind.STATE, {"purpose": "checkpoint", "taker": 0}),
    "left": (Kind.STATE, {"purpose": "leave", "taker": 0}),
    **{kind.value: (kind, {}) for kind in Kind},
    **{kind: (kind, {}) for kind in (ASK, ANSWER)},
}


@st.composite
def nonsense(draw: st.DrawFn) -> Message:
    """A message that a host might send, with some of its fields replaced, lost or added."""
    meant = st.sampled_from(sorted(name for name, (_, fields) in SENSIBLE.items() if fields))
    kind, fields = SENSIBLE[draw(meant | meant | st.sampled_from(sorted(SENSIBLE)))]
    said = {name: value for name, value in fields.items() if draw(st.integers(0, 7))}
    if fields:
        said |= draw(st.dictionaries(st.sampled_from(sorted(fields)), json_values, max_size=2))
    iteration = draw(st.integers(-3, 60) | st.integers(-(2**60), 2**60))
    return Message(kind, iteration, said, draw(st.dictionaries(names, tensors, max_size=2)))


@thorough
@given(message=nonsense())
def test_whatever_a_host_sends_the_others_go_on(desk: FrontDesk, message: Message) -> None:
    desk.begin_iteration()
    desk.send(desk.liar, message)
    desk.made.saving.poll()
    desk.end_iteration()


NESTED: Any = []
for _ in range(100_000):
    NESTED = [NESTED]
WRONG_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("spans", {"rows": [{"start": 10**400}]}),
    ("spans", {"rows": [{"start": "now"}]}),
    ("spans", {"rows": [{}]}),
    ("spans", {"rows": [7]}),
    ("spans", {"fetching": 7}),
    ("spans", {"fetching": {"batches": 0, "threads": 1}}),
    ("spans", {"profile": {"operators": {"sums": 1.0}}}),
    ("spans", {"rows": 7}),
    ("spans", {"rows": [{"start": 0.0, "spans": NESTED}]}),
    ("spans", {"sent_bytes": 7}),
    ("spans", {"memory_bytes": "much"}),
    ("spans", {"received_bytes": [7]}),
    ("real", {"reason": ""}),
    ("ready", {"holds": 7}),
    ("ready", {"holds": [[2]]}),
    ("checkpointed", {"files": ["2"]}),
    ("copy", {"taker": []}),
    ("copy", {"taker": {}}),
]


@pytest.mark.parametrize(("name", "wrong"), WRONG_FIELDS, ids=range(len(WRONG_FIELDS)))
def test_a_field_that_cannot_be_costs_its_sender_its_place(
    desk: FrontDesk, name: str, wrong: dict[str, Any]
) -> None:
    desk.begin_iteration()
    liar = desk.newcomer if name == "ready" else desk.liar
    kind, fields = SENSIBLE[name]
    event = Received(liar.number, Message(kind, 1, {**fields, **wrong}), 0)
    desk.engine.take_in(event)
    assert liar.number not in desk.made.peers.hosts()
    reason = desk.made.events("lost")[0]["reason"]
    assert reason.startswith(f"its {kind} message makes no sense (")
    assert len(reason) < 200
    assert liar.lost()
    desk.end_iteration()


SHA = "0" * 64
WRONG_FILES: list[dict[str, Any]] = [
    {"2": {"name": "server.safetensors", "sha256": SHA, "num_bytes": 1}},
    {"2": {"name": "worker-0001.safetensors", "sha256": SHA, "num_bytes": 1}},
    {"2": {"name": "../worker-0002.safetensors", "sha256": SHA, "num_bytes": 1}},
    {"2": {"name": "worker-0002.safetensors", "sha256": "?", "num_bytes": 1}},
    {"2": {"name": "worker-0002.safetensors", "sha256": SHA, "num_bytes": -1}},
    {"2": {"name": "worker-0002.safetensors", "sha256": SHA}},
    {"2": "worker-0002.safetensors"},
    {"2": None},
    {"server": {"name": "server.safetensors", "sha256": SHA, "num_bytes": 1}},
    {"two": {"name": "worker-0002.safetensors", "sha256": SHA, "num_bytes": 1}},
]


@pytest.mark.parametrize("files", WRONG_FILES, ids=str)
def test_a_file_that_is_none_costs_its_sender_its_place(
    desk: FrontDesk, files: dict[str, Any]
) -> None:
    order_checkpoint(desk, 1)
    desk.send(
        desk.liar, Message(Kind.CHECKPOINTED, 1, {"workers": [2], "files": files, "reason": ""})
    )
    assert LIAR not in desk.made.peers.hosts()
    assert "makes no sense" in desk.made.events("lost")[0]["reason"]
    commit_honestly(desk, 1)
    assert desk.made.wait_for_checkpoint(1).workers == (1,)


@pytest.mark.parametrize("number", [1, 3, 0, -2, 10**9])
def test_files_of_others_do_not_count(desk: FrontDesk, number: int) -> None:
    order_checkpoint(desk, 1)
    name = f"worker-{number:04d}.safetensors"
    files = {str(number): {"name": name, "sha256": SHA, "num_bytes": 7}}
    desk.send(
        desk.liar, Message(Kind.CHECKPOINTED, 1, {"workers": [2], "files": files, "reason": ""})
    )
    desk.send(desk.liar, messages.checkpointed(1, {}, "enough"))
    commit_honestly(desk, 1)
    manifest = desk.made.wait_for_checkpoint(1)
    assert manifest.workers == (1,)
    assert manifest.files["1"].sha256 != SHA


def test_states_of_others_do_not_count(desk: FrontDesk) -> None:
    order_checkpoint(desk, 1)
    forged = {n: {"model.w": torch.zeros(3)} for n in (0, 1, 2, 3)}
    desk.send(desk.liar, messages.state(1, forged, "checkpoint"))
    commit_honestly(desk, 1)
    manifest = desk.made.wait_for_checkpoint(1)
    assert manifest.workers == (1, 2)
    kept = desk.made.saving.kept.state_for(1)
    assert kept is not None
    assert kept.keys() == make_worker(1).state().keys()
    desk.send(desk.liar, messages.state(1, forged, "leave"))
    desk.send(desk.liar, messages.leave(1))
    assert desk.made.saving.kept.state_for(3) is None


def order_checkpoint(desk: FrontDesk, iteration: int) -> None:
    made = desk.made
    made.saving.order(iteration, {}, made.engine.part.state())


def commit_honestly(desk: FrontDesk, iteration: int) -> None:
    desk.send(desk.honest, messages.state(iteration, {1: make_worker(1).state()}, "checkpoint"))
    wait_until(lambda: iteration in desk.made.checkpoints.committed(), "the commit")


def test_a_host_that_says_ready_twice_joins_once(desk: FrontDesk) -> None:
    for _ in range(3):
        desk.send(desk.liar, messages.ready(1, [2]))
        desk.send(desk.liar, messages.ready(1, []))
    assert desk.made.peers.taking_part() == {1: [1], 2: [2]}
    assert not desk.made.events("joined")
    assert desk.liar.link.receive(0.0) is None
