"""What an algorithm adds to the server and to a host; neither knows which algorithm it is."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mdgan.engine.server.barrier import Collector
from mdgan.engine.server.checkpoints import Saving
from mdgan.engine.server.membership import Roster
from mdgan.families.mdgan.messages import Form
from mdgan.families.mdgan.server_swaps import Swapping
from mdgan.messages import Kind, Message
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tracer import Tracer
from mdgan.settings.experiment import Experiment
from mdgan.transport.base import HostTransport, ServerTransport

Hosts = Mapping[int, Collection[int]]
"""Hosts, with those of their workers that are meant."""

AwaitHosts = Callable[[], Hosts]
"""Waits for hosts that take part in the next iteration, and raises if nobody comes."""


@dataclass(frozen=True)
class ServerSurroundings:
    """What the server lends to the algorithm."""

    experiment: Experiment
    transport: ServerTransport
    roster: Roster
    collector: Collector
    swapping: Swapping
    saving: Saving
    observer: RunObserver
    form: Form


@dataclass(frozen=True)
class ServerFamily:
    """What an algorithm brings to the server.

    Attributes:
        make_part: its part.
        form: how answers travel.
        device: where they are wanted.
        counts_busy: see `Collector`.
        copies: see `Reception`.
    """

    make_part: "Callable[[ServerSurroundings], ServerPart]"
    form: Form
    device: torch.device
    counts_busy: bool = True
    copies: bool = True


class Advance(NamedTuple):
    """Training got further.

    Attributes:
        iteration: i, the last that is done.
        losses: float32 [N, 2], J_disc and J_gen of every worker that answered.
    """

    iteration: int
    losses: Tensor


class ServerPart(Protocol):
    """The server's share of an algorithm."""

    @property
    def generator(self) -> nn.Module:
        """G, to be scored, sampled and saved."""

    def begin(self) -> None:
        """Everybody is here who will be at the start.

        Raises:
            BadInput: with what they hold, this cannot be trained.
        """

    def advance(self, done: int, await_hosts: AwaitHosts) -> Advance | None:
        """One global iteration, or one round of several; None if nobody's answer could be used.

        Args:
            done: the last iteration that is done.
            await_hosts: to be called before anything is sent.
        """

    def rhythm(self) -> tuple[int, int]:
        """How many swaps were ordered, and the iterations between two; for a checkpoint."""

    def go_on(self, num_swaps: int, swap_every: int | None) -> None:
        """As `rhythm` was when a checkpoint was made.

        Args:
            num_swaps: how many were ordered.
            swap_every: iterations between two; None to work it out anew.
        """

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken.

        Raises:
            KeyError, RuntimeError: it is no such state, or of other models.
        """


class Learner(Protocol):
    """What a host keeps for a worker, whatever it computes."""

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the worker's next answer depends on."""

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken.

        Returns:
            Whether the shard is the same size; if not, it stays as it is.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """


class HostPart(Protocol):
    """The workers' share of an algorithm, for all workers of one host."""

    @property
    def learners(self) -> Mapping[int, Learner]:
        """By rank."""

    @property
    def begins(self) -> Kind:
        """The kind of message that an iteration begins with."""

    def tell(self) -> dict[str, Any]:
        """What the server's part wants to know of these workers: JSON values."""

    def arrived(self, holds: Sequence[int]) -> None:
        """A server has let this host in.

        Args:
            holds: the workers that can go on as they are.
        """

    def obey(self, order: Message, transport: HostTransport, tracer: Tracer) -> bool:
        """Carries out one message of the server; returns whether it is one of this algorithm."""

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """Takes over what the server found for a worker that had nothing to go on with.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """

    def adopted(self) -> None:
        """All workers have what they need."""
