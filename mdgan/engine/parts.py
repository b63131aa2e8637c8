"""What an algorithm adds to the server and to a host; the engine knows only these classes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mdgan.data.fetching import Fetcher
from mdgan.engine.answers import AnswerForm
from mdgan.engine.host.protocol import Turn
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.gan.average import GeneratorAverage
from mdgan.gan.model_state import State, part_of, under
from mdgan.messages import Message
from mdgan.transport.host_end import HostTransport

ServerHandler = Callable[[Engine, int, Message], None]
"""Takes in a message that a host, given by its number, has sent on its own."""

HostHandler = Callable[[Message, HostTransport], None]  # carries out one message of the server


class Advance(NamedTuple):
    """How far training has got."""

    iteration: int  # i, the last that is done
    losses: Tensor  # float32 [N, 2], J_disc and J_gen of every worker that answered
    workers: Sequence[int] = ()  # in the same order; none where one role does everything
    # What else the algorithm records: name in the row → worker → JSON value.
    measures: Mapping[str, Mapping[int, Any]] = MappingProxyType({})


class ServerPart(ABC):
    """The server's share of an algorithm."""

    form: AnswerForm  # how hosts answer; see `forms` where there are several kinds of question
    # On which answers may be masked; None if the algorithm knows no such answers.
    path: ServerPath | None = None
    device: torch.device = torch.device("cpu")  # the one that answers are moved to
    discriminator: nn.Module | None = None  # D, if the server has one itself
    # Whether workers that are busy with an earlier question count where a quorum must answer.
    counts_busy: bool = True
    # The prefix of those tensors of a worker's state that others may have a copy of, to begin with;
    # None if newcomers need no copy, since the next question brings everything.
    copied: str | None = None
    # What timelines call the process; another name than `server` means that it is alone.
    role: str = "server"

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """How hosts answer each kind of question, in messages of different kinds."""
        return (self.form,)

    @property
    @abstractmethod
    def generator(self) -> nn.Module:
        """G, to be scored, sampled and saved."""

    @abstractmethod
    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One global iteration, or one round of several; None if no answer could be used."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken.

        Raises:
            KeyError, RuntimeError: the state is malformed, or of other models.
        """

    def begin_with(
        self, generator: State, discriminators: Mapping[int, State]
    ) -> Mapping[int, State]:
        """A new run begins with the models of another one; of several discriminators, the first.

        Args:
            generator: fits G; by the model's own names.
            discriminators: fit D; by the worker that trained each, 0 for one that is for all.

        Returns:
            What workers begin with, for `HostPart.adopt`; empty if the server has all models.
        """
        if self.discriminator is not None and discriminators:
            self.discriminator.load_state_dict(discriminators[min(discriminators)])
        self.generator.load_state_dict(generator)
        return {}

    def lacking(self, workers: Collection[int]) -> str:
        """Which workers an iteration lacks, in words for users; empty if these are enough."""
        return "" if workers else "all workers"

    def begin(self, engine: Engine) -> None:
        """All workers that take part from the start have joined.

        Raises:
            BadInput: the algorithm cannot train on what they hold.
        """

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        """What is trained on, by worker, for the report."""
        return engine.peers.holdings()

    def progress(self) -> dict[str, int]:
        """What a checkpoint must know besides `state`, such as how many swaps were ordered."""
        return {}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Training goes on from a checkpoint.

        Args:
            changed: the names of settings that have other values since.
            ended: whether it was to be the end of training then.
        """

    def look_back(self, _shown: nn.Module, _engine: Engine) -> None:
        """Training is saved or ends: records what the report says of the generator so far."""

    @property
    def over(self) -> bool:
        """Whether training ends here, although iterations may be left."""
        return False

    def close(self) -> None:
        """Training is over, however it ended: what the part holds open is closed."""

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message, what takes it in; answers in `form` are not among them."""
        return {}

    def on_lost(self, engine: Engine) -> None:
        """Hosts are gone: the algorithm stops waiting for messages of theirs."""


_AVERAGE = "ema."  # before the names of the generator's average in a checkpoint


@dataclass(frozen=True)
class Trainer:
    """What the server trains with."""

    part: ServerPart
    average: GeneratorAverage | None = None
    fetcher: Fetcher | None = None  # reads samples ahead, if the part has the data itself

    @property
    def shown(self) -> nn.Module:
        """The generator that is scored."""
        return self.part.generator if self.average is None else self.average.model

    def state(self) -> dict[str, Tensor]:
        """A copy of everything here that the next iteration depends on."""
        average = {} if self.average is None else self.average.state()
        return {**self.part.state(), **under(_AVERAGE, average)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken; raises as `ServerPart.load_state`."""
        average = part_of(state, _AVERAGE)
        self.part.load_state({n: t for n, t in state.items() if not n.startswith(_AVERAGE)})
        if self.average is not None and average:
            self.average.load_state(average)
        elif self.average is not None:  # the run had none until now
            self.average.begin_anew()


class Learner(Protocol):
    """What a host keeps for each of its workers, whatever the algorithm."""

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the worker's next answer depends on."""

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken; whether the shard is the same size, else it stays.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """


class HostPart(ABC):
    """The workers' share of an algorithm, for all workers of one host."""

    begins: str  # the kind of message that an iteration or a round begins with
    # When the kinds of message that it handles may come; see `ENGINE`.
    rules: Mapping[str, Turn] = {}
    path: HostPath = HostPath()  # on which answers leave, where they may be masked

    @property
    @abstractmethod
    def learners(self) -> Mapping[int, Learner]:
        """By rank."""

    @abstractmethod
    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""

    def tell(self) -> dict[str, Any]:
        """What the server's part wants to know of these workers: JSON values."""
        return {}

    def arrived(self, holds: Sequence[int]) -> None:
        """A server has let this host in."""

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """Takes over what the server found for a worker; raises as `Learner.load_state`."""
        self.learners[rank].load_state(state)

    def adopted(self) -> None:
        """All workers have what they need."""

    def memory_bytes(self) -> int:
        """What processes of its own hold, beside the host's."""
        return 0

    def close(self) -> None:
        """The host ends: processes and memory of its own are given back."""
