"""The interface of an algorithm: an entry for the registry, and a builder of its two parts.

Checkpoints, reports, plans and comparisons work with every algorithm that has both. The entry
imports no torch, so that the command line starts quickly; a run imports the builder.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from mdgan.engine.settings import RunSettings
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.records.rows import WorkerNumbers
from mdgan.settings.declare import one_of, setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from mdgan.data.shard import ClientShards, Shard
    from mdgan.engine.host_keys import HostKeys
    from mdgan.engine.message_sizes import MessageSizes
    from mdgan.engine.parts import HostPart, ServerPart
    from mdgan.gan.build import Models
    from mdgan.observe.tracer import Tracer
    from mdgan.privacy.budget import Budget, ClientsAccount
    from mdgan.records.rows import Placed
    from mdgan.samples.contract import SampleKind

S = TypeVar("S", bound=RunSettings)

ClassCounts = Sequence[Sequence[int]]  # by worker, the numbers of samples of class 0, 1, …


def mean_size(class_counts: ClassCounts) -> float:
    """m, the mean number of samples of a worker."""
    return sum(map(sum, class_counts)) / len(class_counts)


@dataclass(frozen=True)
class Algorithm(Generic[S]):
    """One entry of the registry."""

    name: str
    about: str  # what trains, in a few words for `--help`
    settings: type[S]
    builder: str  # `module:attribute` of a `Builder`
    # Defaults that replace those in `settings`.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # The step by which training advances, in one word for users: an iteration, a round.
    unit: str = "iteration"
    has_hosts: bool = True  # whether hosts train; if not, the server has the data itself
    # Its settings whose best values depend on the models.
    of_models: frozenset[str] = frozenset()
    # Whether a worker with fewer samples than a batch repeats some in it.
    lets_batches_repeat: bool = True
    # The names in the tracer of the server's phases of every iteration; `host_phases`: of a host's.
    server_phases: tuple[str, ...] = ("send", "wait", "aggregate", "step")
    host_phases: tuple[str, ...] = ("receive", "send")
    # The numbers that it records of workers beside losses, for the report and `mdgan watch`.
    shown: tuple[WorkerNumbers, ...] = ()

    def build(self) -> "Builder[S]":
        """Imports the builder."""
        module, _, name = self.builder.partition(":")
        builder: Builder[S] = getattr(importlib.import_module(module), name)
        return builder

    def phases(self, settings: S) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The phases that the server, and a host, repeat in a run with these settings."""
        saves = settings.makes_checkpoints
        server = self.server_phases + ("checkpoint", "write", "manifest") * saves
        host = self.host_phases + ("checkpoint", "write", "report") * saves
        merges = settings.training.arithmetic.merge_halves
        return (_merged(server), _merged(host)) if merges else (server, host)


def _merged(phases: tuple[str, ...]) -> tuple[str, ...]:
    names = {"real-half": "both-halves", "fake-half": "both-halves"}
    return tuple(dict.fromkeys(names.get(phase, phase) for phase in phases))


@dataclass(frozen=True)
class ServerNeeds(Generic[S]):
    """For `Builder.server`; `shards` are data that no host has, `memory` is shared with hosts."""

    settings: S
    models: "Models"
    device: "torch.device"
    shards: "Mapping[int, Shard]" = field(default_factory=dict)
    memory: Any = None


@dataclass(frozen=True)
class HostNeeds(Generic[S]):
    """The arguments of `Builder.host`."""

    settings: S
    models: "Models"
    shards: "Mapping[int, Shard]"
    device: "torch.device"
    tracer: "Tracer"
    # Whether no other host is in this process, so that the part may set the number of threads.
    own_process: bool = True
    num_workers_here: int = 1  # the workers of all hosts on this machine
    # The shards of placed clients, any of which any host may train.
    clients: "ClientShards | None" = None
    # The cores of each process that the host forks, in turn; empty if they may use all cores.
    cores: Sequence[frozenset[int]] = ()
    # By rank, `Builder.class_counts`, with noise where privacy needs it; or their sum alone.
    class_counts: Mapping[int, Sequence[int]] = field(default_factory=dict)
    # By rank, the privacy budget of the worker's samples; empty without noise.
    budgets: "Mapping[int, Budget]" = field(default_factory=dict)
    # The privacy account of all clients here, where the server adds the noise.
    account: "ClientsAccount | None" = None
    keys: "HostKeys | None" = None
    # The least number of hosts in a masked sum that the user of this machine accepts.
    least_parties: int = 0
    least_sharers: int = 1  # the least number of certificates that share the noise of a sum
    kind: "SampleKind | None" = None  # of the samples
    memory: Any = None  # shared with other hosts and the server; see `Builder.common_memory`


class NothingKept:
    """The `Learner` of a worker that has no state."""

    def state(self) -> "dict[str, Tensor]":
        """Empty."""
        return {}

    def load_state(self, state: "Mapping[str, Tensor]") -> bool:
        """Raises `KeyError` unless the state is empty."""
        if state:
            raise KeyError(f"tensors that do not fit: {sorted(state)[:3]}")
        return True


@dataclass(frozen=True)
class Exchange:
    """For `mdgan plan`: something that hosts send each other now and then, such as a swap.

    Attributes:
        name, thing: the exchange and what moves in it, each in one word.
        num_bytes: of one `thing`.
        every: steps between two exchanges; 0 for never, None if the plan needs `remedy` to know.
        remedy: the flags that say how often.
        moved: gives, for the workers of each host, the mean bytes that change their host.
    """

    name: str
    thing: str
    num_bytes: float
    every: int | None
    remedy: str
    moved: Callable[[Sequence[Sequence[int]]], float]


class PlannedHost(NamedTuple):
    """A host that trains placed clients, its slots, and their speed: 1 is this machine's."""

    slots: int
    speed: float


class PlannedShare(NamedTuple):
    """The work of a `PlannedHost` in a step."""

    clients: int  # how many it trains
    seconds: float  # until its last slot is done
    busy: float  # mean seconds of a slot
    out: float  # bytes to it
    back: float  # bytes from it


@dataclass(frozen=True)
class Placing:
    """Placed clients, for `mdgan plan`."""

    clients: int
    a_step: int  # how many clients train in a step
    slots: int  # of a host
    about: str  # a text about the clients
    # From the records of the short run: the seconds of a client here, by its number of batches.
    seconds: "Callable[[Sequence[Placed]], Mapping[int, float]]"
    # From the records and all hosts: the work of each host.
    shares: "Callable[[Sequence[Placed], Sequence[PlannedHost]], Sequence[PlannedShare]]"


@dataclass(frozen=True)
class Planning(Generic[S]):
    """The short run that `mdgan plan` measures, and how the planned run follows from it.

    A step is one `advance` of the server: an iteration, or a round.
    """

    # Of the short run. With `enough_workers` a process has as much work a step as in the plan.
    settings: S
    enough_workers: int = 1
    # From this many workers of a host on, each further worker adds equally many bytes to messages.
    enough_in_a_host: int = 1
    # The iterations of a step of the planned run; `played_iterations`: of the short run. A worker's
    # answer takes longer by their ratio.
    iterations: int = 1
    played_iterations: int = 1
    worker_bytes: int = 0  # the memory of one more worker in a host
    questions: int = 1  # the questions of the server in a step, each after the last answer
    # Whether hosts work on the next question while the server works on an answer.
    overlaps: bool = False
    # Whether the server steps with each answer by itself. A step then has N answers.
    by_arrival: bool = False
    in_groups: bool = False  # whether groups of workers train different networks
    exchange: Exchange | None = None
    # Of placed clients; the plan then takes the hosts' seconds from it.
    placing: Placing | None = None
    # By row of the plan, a paper's formula: a text, and the bytes for {} in it.
    notes: Mapping[str, tuple[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedRun(Generic[S]):
    """The arguments of `Builder.describe`: a run before it begins."""

    settings: S
    models: "Models"
    class_counts: ClassCounts
    hosts: Sequence[Sequence[int]] = ()  # the workers of each host
    least_parties: int = LEAST_PARTIES  # the least number of hosts in a masked sum


def updates_setting(**others: str) -> Any:
    """Declares `--updates`: sync, async, and `others`, with what these do."""
    return setting(
        "sync",
        "What the generator waits for. sync: it learns through discriminators that have just "
        "stepped; async: through discriminators as they were before, so that neither waits for "
        "the other" + "".join(f"; {name}: {about}" for name, about in others.items()) + ".",
        one_of("sync", "async", *others),
    )


class Builder(ABC, Generic[S]):
    """Builds the two parts of an algorithm, and answers questions about runs of it."""

    @abstractmethod
    def server(self, needs: ServerNeeds[S]) -> "ServerPart":
        """Builds the server's part."""

    def host(self, needs: HostNeeds[S]) -> "HostPart":
        """Builds a host's part; an algorithm without hosts has none."""
        raise TypeError(f"{type(self).__name__} has no hosts: {needs.settings.algorithm}")

    def common_memory(
        self, _settings: S, _models: "Models", _hosts: "Mapping[int, Sequence[int]]"
    ) -> Any:
        """Memory that these hosts, each with its workers, share with the server; None if none.

        The launcher makes it before it forks their processes.

        Raises:
            OSError: the system has no such memory.
        """
        return None

    @abstractmethod
    def message_sizes(self, settings: S, models: "Models") -> "MessageSizes":
        """Bounds of the algorithm's messages, in bytes."""

    def answer_operations(self, _settings: S, _models: "Models") -> float | None:
        """About how many floating-point operations an answer takes, by a forward pass alone.

        None puts each worker on its own host, unless the user says otherwise.
        """
        return None

    def class_counts(self, shard: "Shard", _settings: S) -> list[int]:
        """How many samples of each class a worker holds."""
        return shard.class_counts()

    def check_kind(self, settings: S, kind: "SampleKind") -> None:
        """Refuses, by BadInput, settings that do not go with a kind of samples."""

    def models(self, _settings: S, models: "Models", _kind: "SampleKind") -> "Models":
        """The models that the algorithm trains, given those of settings and data."""
        return models

    def check_holdings(self, settings: S, class_counts: Mapping[int, Sequence[int]]) -> None:
        """Refuses data that the algorithm cannot train on, where counts are known in advance."""

    def weigh_noise(
        self, _settings: S, _kind: "SampleKind", _noise: float, _sizes: Sequence[int]
    ) -> list[str]:
        """Warns if noise σ hides answers of workers of these sizes; BadInput if all are here."""
        return []

    def describe(self, _run: PlannedRun[S]) -> list[tuple[str, str]]:
        """Rows of `--dry-run` about the algorithm: names and values."""
        return []

    def for_coverage(self, _settings: S) -> str:
        """In words: flags that may make samples more various, and what each costs; maybe empty."""
        return ""

    def planning(
        self, settings: S, models: "Models", _class_counts: ClassCounts | None
    ) -> Planning[S]:
        """See `Planning`; the default fits if steps are alike.

        Raises:
            BadInput: a plan needs the counts of each worker or client.
        """
        return Planning(settings, worker_bytes=self.message_sizes(settings, models).state_bytes)
