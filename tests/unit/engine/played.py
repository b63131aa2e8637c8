"""Hosts that a test plays, and the files that they leave."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mdgan import messages
from mdgan.engine.answers import AnswerForm
from mdgan.engine.hello import make_hello
from mdgan.engine.stages.contract import pack_answers
from mdgan.gan.exact_sum import put_together
from mdgan.gan.model_vector import ModelVector
from mdgan.messages import Kind, Message
from mdgan.transport.base import Lost, Received
from mdgan.transport.memory import MemoryHostTransport, MemoryNetwork
from tests.toy_family import ANSWER, ASK

IDENTITY: dict[str, Any] = {"version": "1.2", "seed": 0}
LONG = 60.0
"""Seconds in which anything that is to happen has happened, on any machine."""
SHARD_SIZE = 12


def make_generator(seed: int = 0) -> nn.Module:
    """The smallest one: its input is its noise."""
    generator = nn.Linear(6, 16)
    with torch.no_grad():
        generator.weight.copy_(torch.randn(16, 6, generator=torch.Generator().manual_seed(seed)))
        generator.bias.zero_()
    return nn.Sequential(generator, nn.Unflatten(1, (1, 4, 4)))


FORM = AnswerForm(ANSWER, ModelVector(make_generator()).shape)


COPIED = "model."
"""Before the names of what others may have of a worker's state."""


def model_of(model_seed: int = 0) -> nn.Linear:
    """What a worker of the toy trains."""
    model = nn.Linear(2, 2)
    for parameter in model.parameters():
        nn.init.constant_(parameter, model_seed + 0.5)
    return model


def copied(model_seed: int = 0) -> dict[str, Tensor]:
    """What others get of a worker's state, as it travels."""
    return {f"{COPIED}{n}": t.clone() for n, t in model_of(model_seed).state_dict().items()}


def state_of(worker: int, model_seed: int = 0) -> dict[str, Tensor]:
    """All that a worker's next answer depends on."""
    random = torch.Generator().manual_seed(worker).get_state()
    return {**copied(model_seed), "random": random}


def answer_all(hosts: Sequence["Played"], *iterations: int) -> None:
    """Hosts answer all questions of these iterations."""
    for i in iterations:
        for host in hosts:
            host.answer(i)


def take_all(hosts: Sequence["Played"], iteration: int) -> None:
    """Hosts are asked, and do not answer yet."""
    for host in hosts:
        host.take(ASK, iteration)


def reply_all(hosts: Sequence["Played"], iteration: int) -> None:
    """Hosts answer what they were asked."""
    for host in hosts:
        host.send(answer_of(*host.workers, iteration=iteration))


def weights(model: nn.Module) -> Tensor:
    """All that a model is, in one row."""
    return torch.cat([tensor.reshape(-1).double() for tensor in model.state_dict().values()])


def hello(*workers: int, **fields: Any) -> dict[str, Any]:
    """What a host says of itself, after a journey as JSON."""
    counts = {worker: [SHARD_SIZE] for worker in workers}
    content: dict[str, Any] = json.loads(json.dumps(make_hello(workers[0], counts, IDENTITY)))
    return {**content, **fields}


def change_of(worker: int, iteration: int) -> Tensor:
    """What a worker played by hand answers."""
    random = torch.Generator().manual_seed(1000 * iteration + worker)
    return 0.01 * torch.randn(FORM.shape, generator=random)


def answer_of(*workers: int, iteration: int, **how: Any) -> Message:
    """An answer of a host of these workers."""
    return answers_of({n: change_of(n, iteration) for n in workers}, iteration, **how)


def answers_of(changes: Mapping[int, Tensor], iteration: int, losses: float = 0.5) -> Message:
    """An answer with whatever a test wants to have in it."""
    loss_of = {worker: torch.full((2,), losses) for worker in changes}
    return pack_answers(iteration, changes, loss_of, dict.fromkeys(changes, 0), FORM)


def generator_after(answered: Sequence[Sequence[int]]) -> Tensor:
    """The generator if in each iteration these workers answered, with `change_of`."""
    generator = make_generator()
    vector = ModelVector(generator)
    for i, present in enumerate(answered, 1):
        total = put_together([change_of(worker, i) for worker in sorted(present)], [])
        assert total is not None
        vector.write(vector.read() + total / len(present))
    return weights(generator)


class Played:
    """A host that a test plays: it joins, and then does what the test says."""

    question: str = ASK
    """The kind of message that it answers."""

    def __init__(self, network: MemoryNetwork, *workers: int, **fields: Any) -> None:
        self.workers = workers
        self.number = workers[0]
        self.hello = hello(*workers, **fields)
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
        while (remaining := deadline - time.monotonic()) > 0:
            event = self.link.receive(remaining)
            assert not isinstance(event, Lost), f"lost the server: {event.reason}"
            if isinstance(event, Received):
                self.seen.append(event.message)
                if event.message.kind == kind and iteration in (None, event.message.iteration):
                    return event.message
                if event.message.kind == Kind.CHECKPOINT:
                    self.obey(event.message)
        raise AssertionError(f"no {kind} within {LONG} s, only {self.message_kinds()}")

    def lost(self) -> str:
        """Waits until the server has ended the link; returns why."""
        deadline = time.monotonic() + LONG
        while (remaining := deadline - time.monotonic()) > 0:
            event = self.link.receive(remaining)
            if isinstance(event, Lost):
                return event.reason
            if isinstance(event, Received):
                self.seen.append(event.message)
        raise AssertionError("the link still lives")

    def message_kinds(self) -> list[str]:
        """The kinds of all messages that came, in order."""
        return [message.kind for message in self.seen]

    def iterations(self) -> list[int]:
        """The iterations of the questions that came."""
        return [m.iteration for m in self.seen if m.kind == self.question]

    def send(self, message: Message) -> None:
        self.link.send(message)

    def answer(self, iteration: int | None = None, **how: Any) -> Message:
        """Waits for a question and answers it."""
        question = self.take(self.question, iteration)
        self.send(self.reply_to(question, **how))
        return question

    def give_copy(self, model_seed: int = 0) -> None:
        """Waits until a newcomer needs a copy of a worker's model, and gives it one."""
        order = self.take(Kind.COPY)
        worker, taker = order.fields["worker"], order.fields["taker"]
        state = {worker: copied(model_seed)}
        self.send(messages.state(order.iteration, state, "copy", taker))

    def adopts(self) -> dict[int, dict[str, Tensor]]:
        """Waits until it is given what its workers lack; by worker."""
        return messages.by_worker(self.take(Kind.ADOPT))

    def save(self, iteration: int, model_seed: int = 0) -> None:
        """Waits for the order to save, and sends its workers' states."""
        order = self.take(Kind.CHECKPOINT, iteration)
        assert order.fields["to_server"]
        states = {worker: state_of(worker, model_seed) for worker in self.workers}
        self.send(messages.state(iteration, states, "checkpoint"))

    def reply_to(self, question: Message, **how: Any) -> Message:
        """A whole answer, but for `changes` that the test wants to be others."""
        i, workers = question.iteration, question.fields["workers"]
        usual = {n: change_of(n, i) for n in workers}
        return answers_of({**usual, **how.pop("changes", {})}, i, **how)

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
        """Does what a host without models can do about a message."""
        if message.kind == self.question:
            self.send(self.reply_to(message))
        elif message.kind == Kind.CHECKPOINT:
            text = "this host is only played"
            self.send(messages.checkpointed(message.iteration, {}, text))
        elif message.kind == Kind.ADOPT:
            self.send(messages.ready(message.iteration, self.workers))

    def die(self) -> None:
        """Is gone, as after SIGKILL: the server sees a closed connection."""
        self.link.close()
