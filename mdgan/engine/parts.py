"""The classes that an algorithm fills in: its share of the server's work, and of a host's."""

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
"""Takes in a message that the host with this number has sent without being asked."""

HostHandler = Callable[[Message, HostTransport], object]  # does what a message of the server asks


class Advance(NamedTuple):
    """What one call of `ServerPart.advance` has achieved."""

    iteration: int  # i, the last completed iteration
    losses: Tensor  # float32 [N, 2], J_disc and J_gen of every worker that answered
    workers: Sequence[int] = ()  # these workers, in the same order; empty if there are none
    # What else the algorithm records: name in the row → worker → JSON value.
    measures: Mapping[str, Mapping[int, Any]] = MappingProxyType({})


class ServerPart(ABC):
    """The server's share of an algorithm."""

    generator: nn.Module  # G, for scoring, sampling and saving
    form: AnswerForm  # how hosts answer; see `forms` where there are several kinds of question
    # The way of answers that may be masked; None if the algorithm has no such answers.
    path: ServerPath | None = None
    device: torch.device = torch.device("cpu")  # where answers are moved to
    discriminator: nn.Module | None = None  # D, if the server has one itself
    # Whether workers that are busy with an earlier question count where a quorum must answer.
    counts_busy: bool = True
    # A newcomer gets a copy of a live worker's tensors with this prefix. None if newcomers need no
    # copy, since the next question brings everything.
    copied: str | None = None
    # The name of the process in timelines; one that is not `server` trains alone, without hosts.
    role: str = "server"

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """The forms of answers, one for each kind of question; each has its own message kind."""
        return (self.form,)

    @abstractmethod
    def advance(self, done: int, engine: Engine) -> Advance | None:
        """Trains one iteration, or a round of several, after iteration `done`; None if it failed.

        It fails if the server could use no answer.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Copies everything that the next iteration depends on."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state`; KeyError or RuntimeError if it is malformed or does not fit."""

    def begin_with(
        self, generator: State, discriminators: Mapping[int, State]
    ) -> Mapping[int, State]:
        """Begins a new run with the models of another one; of several discriminators, the first.

        Args:
            generator: tensors that fit G, by the model's own names.
            discriminators: tensors that fit D, by the worker that trained them; 0 for all workers.

        Returns:
            The states that workers begin with (`HostPart.adopt`); empty if hosts have no models.
        """
        if self.discriminator is not None and discriminators:
            self.discriminator.load_state_dict(discriminators[min(discriminators)])
        self.generator.load_state_dict(generator)
        return {}

    def lacking(self, workers: Collection[int]) -> str:
        """Describes to users which workers an iteration lacks; empty if these are enough."""
        return "" if workers else "all workers"

    def begin(self, engine: Engine) -> None:
        """Prepares training, once all workers have joined; BadInput if their data do not fit."""

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        """The data that each worker trains on, for the report."""
        return engine.peers.holdings()

    def progress(self) -> dict[str, int]:
        """Numbers that a checkpoint keeps beside `state`, such as how many swaps were ordered."""
        return {}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Continues from a checkpoint, after `load_state`.

        Args:
            progress: as the checkpoint has it.
            changed: the names of settings whose values differ from the checkpoint's.
            ended: whether the checkpoint was made at what was then the end of training.
        """

    def look_back(self, _shown: nn.Module, _engine: Engine) -> None:
        """Records what the report says of the generator, before a save and at the end."""

    @property
    def over(self) -> bool:
        """Whether the algorithm has finished before the last iteration."""
        return False

    def close(self) -> None:
        """Closes what the part holds open; called however training ended."""

    def handlers(self) -> Mapping[str, ServerHandler]:
        """The handler of each kind of message that a host sends unasked; answers have none."""
        return {}

    def on_lost(self, engine: Engine) -> None:
        """Stops waiting for messages of hosts that were lost."""


_AVERAGE = "ema."  # before the names of the generator's average in a checkpoint


@dataclass(frozen=True)
class Trainer:
    """The server's part of the algorithm, the generator's average, and the reader of samples."""

    part: ServerPart
    average: GeneratorAverage | None = None
    fetcher: Fetcher | None = None  # reads samples ahead, if the server holds the data itself

    @property
    def shown(self) -> nn.Module:
        """The generator that is scored."""
        return self.part.generator if self.average is None else self.average.model

    def state(self) -> dict[str, Tensor]:
        """Copies the state of the part and of the average."""
        average = {} if self.average is None else self.average.state()
        return {**self.part.state(), **under(_AVERAGE, average)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state`; raises as `ServerPart.load_state`."""
        average = part_of(state, _AVERAGE)
        self.part.load_state({n: t for n, t in state.items() if not n.startswith(_AVERAGE)})
        if self.average is not None and average:
            self.average.load_state(average)
        elif self.average is not None:  # the run had no average until now
            self.average.begin_anew()


class Learner(Protocol):
    """One worker on a host, whatever the algorithm."""

    def state(self) -> dict[str, Tensor]:
        """Copies everything that the worker's next answer depends on."""

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues from a `state`; returns whether it was of a shard of the same size.

        At another size the shard stays as it is.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """


class HostPart(ABC):
    """The workers' share of an algorithm, for all workers of one host."""

    learners: Mapping[int, Learner]  # the workers, by rank
    begins: str  # the kind of the server's message that begins an iteration or a round
    # When messages of the kinds in `handlers` may come; see `ENGINE`.
    rules: Mapping[str, Turn] = {}
    path: HostPath = HostPath()  # the way on which answers leave the host, masked or not

    @abstractmethod
    def handlers(self) -> Mapping[str, HostHandler]:
        """The handler of each kind of message of the server."""

    def tell(self) -> dict[str, Any]:
        """What the server's part must know of these workers before they train, as JSON values."""
        return {}

    def arrived(self, holds: Sequence[int]) -> None:
        """Called when a server has let this host in; the workers in `holds` have states."""

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """Loads the state that the server found for a worker; raises as `Learner.load_state`."""
        self.learners[rank].load_state(state)

    def adopted(self) -> None:
        """Called when all workers have the states that they need."""

    def memory_bytes(self) -> int:
        """Memory of processes that the part has started beside the host's process."""
        return 0

    def close(self) -> None:
        """Ends the part's processes and frees its memory, as the host ends."""
