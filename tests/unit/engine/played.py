"""Hosts that a test plays by hand, and what they leave behind."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mdgan import messages
from mdgan.engine.answers import AnswerForm, pack_answers
from mdgan.engine.hello import make_hello
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.aggregation import aggregate
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK, SWAP
from mdgan.messages import Kind, Message
from mdgan.transport.base import Lost, Received
from mdgan.transport.memory import MemoryHostTransport, MemoryNetwork
from tests.unit.gan import small

IDENTITY: dict[str, Any] = {"version": "1.2", "seed": 0}
LONG = 20.0
"""Seconds in which anything that is to happen has happened, on any machine."""
SHARD_SIZE = 12
FORM = AnswerForm(FEEDBACK, (small.BATCH_SIZE, *small.SHAPE))


def hello(*workers: int, **said: Any) -> dict[str, Any]:
    """What a host says of itself, after a journey as JSON."""
    counts = {worker: [SHARD_SIZE] for worker in workers}
    content: dict[str, Any] = json.loads(json.dumps(make_hello(workers[0], counts, IDENTITY)))
    return {**content, **said}


def feedback_of(worker: int, iteration: int) -> Tensor:
    """What a worker played by hand answers."""
    return 0.01 * small.images(1000 * iteration + worker)


def answer_to(
    batches: Message, feedbacks: Mapping[int, Tensor] | None = None, *, losses: float = 0.5
) -> Message:
    """A whole answer to a BATCHES message."""
    workers = [int(name) for name in batches.fields["judge"]]
    given = feedbacks or {}
    answers = {n: given.get(n, feedback_of(n, batches.iteration)) for n in workers}
    return answers_of(answers, batches.iteration, losses)


def answer_of(worker: int, iteration: int) -> Message:
    """The same from a host of one worker, without looking at what it was sent."""
    return answers_of({worker: feedback_of(worker, iteration)}, iteration)


def answers_of(feedbacks: Mapping[int, Tensor], iteration: int, loss: float = 0.5) -> Message:
    """A FEEDBACK message with whatever a test wants to have in it."""
    losses = {worker: torch.full((2,), loss) for worker in feedbacks}
    judged = assign(list(feedbacks), 2)
    batches = {worker: assignment.judge for worker, assignment in judged.items()}
    return pack_answers(iteration, feedbacks, losses, batches, FORM)


class Played:
    """A host that a test plays: it joins, and then does what the test says."""

    def __init__(self, network: MemoryNetwork, *workers: int, **said: Any) -> None:
        self.workers = workers
        self.number = workers[0]
        self.hello = hello(*workers, **said)
        self.link: MemoryHostTransport = network.join(self.number, self.hello)
        self.seen: list[Message] = []

    @property
    def welcome(self) -> Mapping[str, Any]:
        return self.link.welcome

    def ready(self, *holds: int) -> "Played":
        """Tells which workers can go on; by default all."""
        self.link.send(messages.ready(int(self.welcome["iteration"]), holds or self.workers))
        return self

    def lacks_everything(self) -> "Played":
        self.link.send(messages.ready(int(self.welcome["iteration"]), []))
        return self

    def take(self, kind: str, iteration: int | None = None) -> Message:
        """The next message of a kind; what comes before it is kept in `seen`.

        Checkpoints that are ordered before it are answered: this host cannot write.
        """
        deadline = time.monotonic() + LONG
        while (left := deadline - time.monotonic()) > 0:
            event = self.link.receive(left)
            assert not isinstance(event, Lost), f"lost the server: {event.reason}"
            if isinstance(event, Received):
                self.seen.append(event.message)
                if event.message.kind == kind and iteration in (None, event.message.iteration):
                    return event.message
                if event.message.kind == Kind.CHECKPOINT:
                    self.obey(event.message)
        raise AssertionError(f"no {kind} within {LONG} s, only {self.told()}")

    def lost(self) -> str:
        """Waits until the server has ended the link; returns why."""
        deadline = time.monotonic() + LONG
        while (left := deadline - time.monotonic()) > 0:
            event = self.link.receive(left)
            if isinstance(event, Lost):
                return event.reason
            if isinstance(event, Received):
                self.seen.append(event.message)
        raise AssertionError("the link still lives")

    def told(self) -> list[str]:
        """The kinds of all messages that came, in order."""
        return [message.kind for message in self.seen]

    def iterations(self) -> list[int]:
        """The iterations of the batches that came."""
        return [m.iteration for m in self.seen if m.kind == BATCHES]

    def send(self, message: Message) -> None:
        self.link.send(message)

    def answer(self, iteration: int | None = None, **how: Any) -> Message:
        """Waits for batches and answers them."""
        batches = self.take(BATCHES, iteration)
        self.send(answer_to(batches, **how))
        return batches

    def serve(self, seconds: float) -> bool:
        """Does what a good host does for a while; returns whether the server has said stop."""
        event = self.link.receive(seconds)
        assert event is None or isinstance(event, Received), event
        if event is None:
            return False
        self.seen.append(event.message)
        self.obey(event.message)
        return event.message.kind == Kind.STOP

    def obey(self, message: Message) -> None:
        """Does what a host without discriminators can do about a message."""
        i = message.iteration
        if message.kind == BATCHES:
            self.send(answer_to(message))
        elif message.kind == SWAP:
            given = {row[0]: "a" * 64 for row in message.fields["moves"] if row[0] in self.workers}
            self.send(mdgan_messages.swapped(i, given, {}))
        elif message.kind == Kind.CHECKPOINT:
            self.send(messages.checkpointed(i, {}, "this host is only played"))
        elif message.kind == Kind.ADOPT:
            self.send(messages.ready(i, self.workers))

    def die(self) -> None:
        """Is gone, as after SIGKILL: the server sees a closed connection."""
        self.link.close()


def generator_after(
    answered: Sequence[Sequence[int]],
    asked: Sequence[Sequence[int]] | None = None,
    kappa: int = 2,
) -> Tensor:
    """The generator if in each iteration these workers answered, of those who were asked.

    Args:
        answered: for each iteration who answered, with `feedback_of`.
        asked: likewise; by default those who answered.
        kappa: κ.
    """
    learner = small.make_learner()
    for i, (present, all_asked) in enumerate(zip(answered, asked or answered, strict=True), 1):
        learner.generate(kappa)
        feedbacks = {worker: feedback_of(worker, i) for worker in present}
        learner.backward(aggregate(feedbacks, assign(all_asked, kappa), kappa))
        learner.step()
    return weights(learner.model)


def weights(model: nn.Module) -> Tensor:
    """All that a model is, in one row."""
    return torch.cat([tensor.reshape(-1).double() for tensor in model.state_dict().values()])
