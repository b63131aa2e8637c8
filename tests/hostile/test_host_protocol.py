"""A server that asks for what no honest server would: the host ends the link, in one line.

A real host of MD-GAN with two workers, whose server is played. Its group of workers notes from
which state of shard and random numbers each answer was found: the same one twice would be one batch
of real samples that was answered twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan import messages
from mdgan.engine.host.loop import HostFailed
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.host import OneByOne, WorkerAnswers
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK, SWAP, SWAPPED
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import digest_of
from mdgan.messages import Kind, Message
from mdgan.transport.base import Received
from tests.processes import wait_until
from tests.unit.engine.played import LONG
from tests.unit.families.mdgan.played_server import PlayedServer, batches
from tests.unit.families.mdgan.stage import make_worker, same_state

RANKS = (1, 2)
REFUSED = "this host does not answer the server in this process: "
KEEP = 2
"""K of the host, as `stage.make_host` sets it."""


class Watched(OneByOne):
    """Notes what each answer was found from."""

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        super().__init__(workers)
        self.watched = workers
        self.begun: list[str] = []

    def answer(self, generated: Samples, assignment: Mapping[int, Any]) -> WorkerAnswers:
        """See `OneByOne`."""
        self.begun += [f"{rank} {data_of(self.watched[rank])}" for rank in assignment]
        return super().answer(generated, assignment)


def data_of(worker: Worker) -> str:
    """Which batch a worker draws next, and with which random numbers."""
    state = worker.state().items()
    return digest_of({n: t for n, t in state if n.startswith(("shard.", "random."))})


class Bench(PlayedServer):
    """A server that lies, and a host of two workers; all that the host says is kept."""

    def __init__(self, folder: Path, **welcome: Any) -> None:
        super().__init__(folder)
        self.welcome |= welcome
        self.workers = {rank: make_worker(rank) for rank in RANKS}
        self.group = Watched(self.workers)
        self.heard: list[Message] = []
        self.starts(self.workers, group=self.group)
        self.wait_for(Kind.READY)

    def wait_for(self, kind: str, times: int = 1) -> None:
        """Waits until the host has said something so often, or has ended."""

        def is_heard() -> bool:
            while (event := self.network.server.receive(0.0)) is not None:
                if isinstance(event, Received) and event.message.kind != Kind.SPANS:
                    self.heard.append(event.message)
            return not self.actor.is_alive() or self.count(kind) >= times

        wait_until(is_heard, kind, LONG)

    def count(self, kind: str) -> int:
        return [message.kind for message in self.heard].count(kind)

    def returns(self, **welcome: Any) -> None:
        """The server cuts the link, and tells the host something else when it comes back."""
        ready = self.count(Kind.READY)
        self.welcome |= welcome
        self.cut()
        self.wait_for(Kind.READY, ready + 1)

    def ended(self) -> str:
        """How the host has ended; checks that it is one line, and that no batch was used twice."""
        error = self.actor.over()
        self.wait_for("all that was said")
        assert len(self.group.begun) == len(set(self.group.begun))
        if error is None:
            return ""
        assert isinstance(error, HostFailed), repr(error)
        assert str(error).startswith(REFUSED)
        assert len(str(error).splitlines()) == 1
        return str(error).removeprefix(REFUSED)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**welcome: Any) -> Bench:
        made.append(Bench(tmp_path / "checkpoints", **welcome))
        return made[-1]

    yield make
    for each in made:
        each.close()


def discriminators(workers: Mapping[int, Worker]) -> dict[str, Tensor]:
    """Those of all workers, with their optimizers.

    Without buffers, which change when a host learns ahead, after it has answered.
    """
    states = messages.of_workers({rank: worker.state() for rank, worker in workers.items()})
    some = next(iter(workers.values())).discriminator.model
    buffers = tuple(f"/discriminator.model.{name}" for name, _ in some.named_buffers())
    before = {name: tensor for name, tensor in states.items() if not name.endswith(buffers)}
    return {name: tensor for name, tensor in before.items() if "/discriminator." in name}


def trap(worker: Worker) -> dict[str, Tensor]:
    """A whole state of a worker, with another discriminator in it."""
    return {n: t + n.startswith("discriminator.model.") for n, t in worker.state().items()}


# What was shown to work, each refused at once.


@pytest.mark.parametrize("returns", [{}, {"iteration": 2}, {"generation": 2, "iteration": 0}])
def test_a_batch_is_not_answered_for_a_second_discriminator(
    bench: Callable[..., Bench], returns: Mapping[str, Any]
) -> None:
    """A trap, with shard and random numbers as they were, whether or not the host comes back."""
    lies = bench()
    put_back = {rank: trap(worker) for rank, worker in lies.workers.items()}
    lies.send(batches(1, lies.workers))
    lies.wait_for(FEEDBACK)
    if returns:
        lies.returns(brings_states=True, **returns)
    lies.send(messages.adopt(2, put_back))
    lies.send(batches(2, lies.workers))
    assert lies.ended() == "it gives states to workers that lack none"
    assert lies.count(FEEDBACK) == 1


def test_states_stay_with_a_host_that_does_not_send_them(bench: Callable[..., Bench]) -> None:
    lies = bench(wants_states=True)
    lies.send(messages.checkpoint(0, [], to_server=True))
    assert lies.ended() == "it wants states of workers, and no checkpoint_to_server is set here"
    assert not lies.count(Kind.STATE)
    lies = bench(wants_states=True)
    lies.host.interrupt()
    lies.wait_for(Kind.LEAVE)
    assert not lies.count(Kind.STATE)


@pytest.mark.parametrize("then", [1, 2])
def test_an_iteration_that_was_answered_is_answered_no_more(
    bench: Callable[..., Bench], then: int
) -> None:
    lies = bench()
    for i in (1, 2, then):
        lies.send(batches(i, lies.workers))
    assert lies.ended() == f"it sends BATCHES of iteration {then} after BATCHES of iteration 2"
    assert lies.count(FEEDBACK) == 2


def test_orders_of_checkpoints_do_not_fill_the_disk(bench: Callable[..., Bench]) -> None:
    lies = bench()
    orders = [7 * i + 10**6 * (i % 3) for i in range(40)]
    for number, i in enumerate(sorted(orders), 1):
        lies.send(messages.checkpoint(i, orders, to_server=False))
        lies.wait_for(Kind.CHECKPOINTED, number)
        assert len([*lies.folder.iterdir()]) <= KEEP + 3
    lies.returns(run="another")
    lies.send(messages.checkpoint(10**7, orders, to_server=False))
    lies.wait_for(Kind.CHECKPOINTED, len(orders) + 1)
    assert {path.name for path in lies.folder.parent.iterdir()} == {"checkpoints"}
    lies.returns(run_id="of another run")
    assert lies.ended() == "it has another run than the one that this host takes part in"


def message_of(kind: str, iteration: int, choice: int) -> tuple[Message, Any]:
    """A well-formed message, and what about it decides whether it may come."""
    ranks = RANKS[: 1 + choice % 2]
    if kind == BATCHES:
        return batches(max(1, iteration), dict.fromkeys(ranks)), None
    if kind == SWAP:
        home = dict.fromkeys(RANKS, 1)
        return mdgan_messages.swap(iteration, 1, {1: 2, 2: 1}, home, {}, {}), None
    if kind == Kind.ADOPT:
        return messages.adopt(iteration, {n: trap(make_worker(n)) for n in ranks}), ranks
    if kind == Kind.COPY:
        return messages.copy(iteration, 1, 9), None
    if kind == Kind.CHECKPOINT:
        return messages.checkpoint(iteration, range(9), to_server=choice == 3), choice == 3
    return Message(kind, iteration, {"kind": "x", "name": "x", "sha256": "x"}), None


def with_fields(message: Message, **fields: Any) -> Message:
    """The same with others of its fields."""
    return replace(message, fields={**message.fields, **fields})


ONE = batches(1, {1: None})
UNFIT: Mapping[str, tuple[Sequence[Message], str]] = {
    "kind": ([Message("FEEDBACK", 1)], "it sends FEEDBACK of iteration 1, which no server"),
    "network again": ([Message(Kind.EXTRACTOR, 0, {"kind": "x"})] * 2, "more than 1 on this link"),
    "checkpoint again": (
        [messages.checkpoint(3, [], to_server=False)] * 3,
        "more than 2 of that iteration",
    ),
    "copies": ([messages.copy(1, 1, 9)] * 101, "more than 100 within ten minutes"),
    "another's batch": ([batches(1, {7: None})], "its BATCHES message makes no sense (KeyError: 7"),
    "no fields": ([Message(BATCHES, 1)], "its BATCHES message makes no sense"),
    "no moves": ([Message(SWAP, 1)], "its SWAP message makes no sense"),
    "no network": ([Message(Kind.EXTRACTOR, 1)], "its EXTRACTOR message makes no sense"),
    "no reason": ([Message(Kind.STOP, 1)], "its STOP message makes no sense"),
    "no kept": ([Message(Kind.CHECKPOINT, 1)], "its CHECKPOINT message makes no sense"),
    "half a place": ([with_fields(ONE, judge={"1": 0.5})], "a batch that is none of the 2"),
    "other numbers": (
        [replace(ONE, tensors={"batches.values": ONE.tensors["batches.values"].double()})],
        "batches of torch.float64",
    ),
    "given twice": (
        [with_fields(message_of(SWAP, 1, 0)[0], moves=[[1, 1, 7, 7], [1, 1, 8, 8]])],
        "a worker gives or gets twice: [1, 1]",
    ),
    "keys": ([Message(Kind.KEYS, 1)], "it sends KEYS of iteration 1, which no server of such a"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_one_line(bench: Callable[..., Bench], name: str) -> None:
    lies, (sent, why) = bench(), UNFIT[name]
    for message in sent:
        lies.send(message)
    assert why in lies.ended()


@pytest.mark.parametrize("iteration", [1 << 70, -1, None, "x", 1e400])
def test_a_welcome_to_an_iteration_that_is_none(tmp_path: Path, iteration: Any) -> None:
    lies = Bench(tmp_path / "checkpoints", iteration=iteration)
    assert "its WELCOME message makes no sense" in lies.ended()
    assert not lies.heard


# All messages in any order.


@dataclass
class Expected:
    """What an honest server could still send; written for itself, beside the host's table."""

    at: int
    lacks: set[int]
    asked: int = -1
    swapped: int = -1
    saved: list[int] = field(default_factory=list)
    highest: int = 0
    generation: int = 1
    described: bool = False
    trained: bool = False
    num_given: int = 0

    @property
    def now(self) -> int:
        """The iteration that the host has heard of last."""
        return max(self.at, self.asked, self.swapped)

    def fits(self, kind: str, iteration: int, detail: Any) -> bool:
        """Whether a message fits; then it counts as sent."""
        if kind == Kind.ADOPT:
            fits = bool(self.lacks) and set(detail) <= self.lacks and self.num_given < 5
            self.num_given += fits
            # A host goes on as it is with what it was not given.
            self.lacks = set() if fits else self.lacks
            return fits
        if self.lacks:
            return False
        if kind == BATCHES:
            fits = iteration >= self.at - 1 and iteration > max(self.asked, self.swapped)
            self.asked, self.highest = iteration, max(self.highest, iteration)
            self.trained = True
        elif kind == SWAP:
            fits = iteration > self.swapped and iteration >= self.asked
            self.swapped, self.trained = iteration, True
        elif kind == Kind.COPY:
            fits = self.trained = True
        elif kind == Kind.CHECKPOINT:
            before = self.saved.count(iteration)
            fits = not detail and iteration >= max(self.saved, default=0) and before < 2
            self.saved.append(iteration)
        else:
            fits = kind == Kind.EXTRACTOR and not self.described
            self.described = True
        return fits

    def returns(self, iteration: int, generation: int) -> bool:
        """Whether a host that comes back may be told this; the link begins anew."""
        if generation < self.generation or (
            generation == self.generation and iteration < self.highest - 1
        ):
            return False
        self.highest = self.highest if generation == self.generation else 0
        self.at, self.generation = iteration, generation
        self.asked, self.swapped, self.saved, self.described = -1, -1, [], False
        self.lacks = set(RANKS) if iteration and not self.trained else set()
        return True


ANSWERS = {
    BATCHES: FEEDBACK,
    SWAP: SWAPPED,
    Kind.COPY: Kind.STATE,
    Kind.CHECKPOINT: Kind.CHECKPOINTED,
    Kind.EXTRACTOR: Kind.REAL,
    Kind.ADOPT: Kind.READY,
}
BACK = "back"
OFTEN = (BATCHES, BATCHES, BATCHES, SWAP, BACK, *ANSWERS)
RARE = (*sorted({*Kind} - {Kind.STOP}), "JOIN", "ROUND", "NONE")
acts = st.tuples(
    st.one_of(*([st.sampled_from(OFTEN)] * 5), st.sampled_from(RARE)),
    st.sampled_from((1, 1, 1, 1, 1, 1, 0, 0, 2, -1, -2, 9)),
    st.integers(0, 3),
)


def play(folder: Path, start: int, sequence: Sequence[tuple[str, int, int]]) -> None:
    """Sends all that fits and the first that does not, or STOP."""
    lies, model = Bench(folder / "checkpoints", iteration=start), Expected(start, set())
    model.lacks = set(RANKS) if start else set()
    try:
        for kind, later, choice in sequence:
            iteration = max(0, model.now + later)
            number = lies.count(ANSWERS.get(kind, "nothing"))
            before = discriminators(lies.workers)
            if kind == BACK:
                generation = max(1, model.generation + choice - 1)
                fits = model.returns(iteration, generation)
                lies.returns(iteration=iteration, generation=generation)
            else:
                message, detail = message_of(kind, iteration, choice)
                fits = model.fits(kind, message.iteration, detail)
                lies.send(message)
                lies.wait_for(ANSWERS.get(kind, "nothing"), number + 1)
            assert len([*folder.glob("checkpoints/*")]) <= KEEP + 3
            if not fits:
                assert lies.ended()
                assert lies.count(ANSWERS.get(kind, "nothing")) == number
                assert same_state(discriminators(lies.workers), before)
                return
            assert lies.actor.is_alive(), repr(lies.actor.error)
        lies.send(messages.stop(9, ""))
        assert not lies.ended()
        assert {m.fields["purpose"] for m in lies.heard if m.kind == Kind.STATE} <= {"copy"}
    finally:
        lies.close()


@settings(max_examples=25)
@given(st.sampled_from([0, 0, 3]), st.lists(acts, max_size=12))
def test_messages_in_any_order(start: int, sequence: Sequence[tuple[str, int, int]]) -> None:
    with TemporaryDirectory() as folder:
        play(Path(folder), start, sequence)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=600)
@given(st.sampled_from([0, 0, 3]), st.lists(acts, max_size=40))
def test_many_messages_in_any_order(start: int, sequence: Sequence[tuple[str, int, int]]) -> None:
    with TemporaryDirectory() as folder:
        play(Path(folder), start, sequence)
