"""What an algorithm must supply; everything else then works with it.

The entry in `registry.py` is light, so that the command line starts quickly. What needs torch is in
a `Builder`, which is imported when a run begins.
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

ClassCounts = Sequence[Sequence[int]]  # of each worker, the number of samples of class 0, 1, …


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
    # Settings that have other defaults here than in `settings`.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # What training advances by, in one word for users: an iteration, a round.
    unit: str = "iteration"
    has_hosts: bool = True  # whether there are hosts; if not, the server has the data itself
    # Of its own settings those of which the best values depend on the models.
    of_models: frozenset[str] = frozenset()
    # Whether a worker with fewer samples than a batch repeats some.
    lets_batches_repeat: bool = True
    # What the server's tracer calls the phases that every iteration has; `host_phases`: a host's.
    server_phases: tuple[str, ...] = ("send", "wait", "aggregate", "step")
    host_phases: tuple[str, ...] = ("receive", "send")
    # What it records of its workers beside their losses, for the report and `mdgan watch`.
    shown: tuple[WorkerNumbers, ...] = ()
    other_names: tuple[str, ...] = ()  # as its paper writes it; users may, too

    def build(self) -> "Builder[S]":
        """Imports the builder."""
        module, _, name = self.builder.partition(":")
        builder: Builder[S] = getattr(importlib.import_module(module), name)
        return builder

    def phases(self, settings: S) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The phases that the server, and a host, enter again and again in a run."""
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
    """What the server's part is built from: `shards` of no host, `memory` shared with hosts."""

    settings: S
    models: "Models"
    device: "torch.device"
    shards: "Mapping[int, Shard]" = field(default_factory=dict)
    memory: Any = None


@dataclass(frozen=True)
class HostNeeds(Generic[S]):
    """What a host's part is built from."""

    settings: S
    models: "Models"
    shards: "Mapping[int, Shard]"
    device: "torch.device"
    tracer: "Tracer"
    # Whether the host has a process of its own, so that its part may change how many compute
    # threads there are.
    own_process: bool = True
    num_workers_here: int = 1  # how many workers this machine carries, on all hosts together
    # The shards of placed clients, if any host may train any of them.
    clients: "ClientShards | None" = None
    # Of one process that the host forks after another; empty if they may use all.
    cores: Sequence[frozenset[int]] = ()
    # By rank, what `Builder.class_counts` says, with noise if that hides it; or their sum alone.
    class_counts: Mapping[int, Sequence[int]] = field(default_factory=dict)
    # What the samples of the workers may spend, by rank; empty without noise.
    budgets: "Mapping[int, Budget]" = field(default_factory=dict)
    # Of the workers' samples, where the server adds the noise.
    account: "ClientsAccount | None" = None
    keys: "HostKeys | None" = None
    # How many hosts' answers a sum must have, as the user of this machine says.
    least_parties: int = 0
    least_sharers: int = 1  # and how many certificates must share the noise of one
    kind: "SampleKind | None" = None  # of the samples
    memory: Any = None  # what this host shares with others; see `Builder.common_memory`


class NothingKept:
    """What a host keeps for a worker (see `Learner`) that has nothing to keep."""

    def state(self) -> "dict[str, Tensor]":
        """Empty."""
        return {}

    def load_state(self, state: "Mapping[str, Tensor]") -> bool:
        """Takes nothing, or raises `KeyError`."""
        if state:
            raise KeyError(f"tensors that do not fit: {sorted(state)[:3]}")
        return True


@dataclass(frozen=True)
class Exchange:
    """What hosts hand to each other now and then, for `mdgan plan`: `name` and `thing` in one word.

    Attributes:
        num_bytes: of one such thing.
        every: steps between two; 0 for never, None where only `remedy`, flags, make it known.
        moved: from the workers of each host to the bytes that change their host, on average.
    """

    name: str
    thing: str
    num_bytes: float
    every: int | None
    remedy: str
    moved: Callable[[Sequence[Sequence[int]]], float]


class PlannedHost(NamedTuple):
    """A host that trains placed clients in slots, and the speed of each: 1 as on this machine."""

    slots: int
    speed: float


class PlannedShare(NamedTuple):
    """What such a host does in a step: how many clients it trains, and for how many seconds.

    A slot is `busy` so many seconds meanwhile, on average; bytes go `out` to it and come `back`.
    """

    clients: int
    seconds: float
    busy: float
    out: float
    back: float


@dataclass(frozen=True)
class Placing:
    """Placed clients, for `mdgan plan`: how many, how many in a step, and the slots of a host."""

    clients: int
    a_step: int
    slots: int
    about: str  # what is known of the clients, for people
    # From what a short run recorded, how long a client takes on this machine, by the number of its
    # batches: those that were measured.
    seconds: "Callable[[Sequence[Placed]], Mapping[int, float]]"
    # From that and all hosts, what each host does.
    shares: "Callable[[Sequence[Placed], Sequence[PlannedHost]], Sequence[PlannedShare]]"


@dataclass(frozen=True)
class Planning(Generic[S]):
    """What `mdgan plan` must know besides what it measures in a short run on noise.

    A step is what the server does between two questions to its hosts: an iteration, or a round.
    """

    # Of the short run. With fewer workers, but at least `enough_workers`, a process must have as
    # much to do in a step as in the planned run.
    settings: S
    enough_workers: int = 1
    # From so many workers of a host on, each further one adds as many bytes to its messages as the
    # one before.
    enough_in_a_host: int = 1
    # By which a step of the planned run advances training; `played_iterations`: one of the short
    # run. A worker's answer takes as many times longer as it is larger.
    iterations: int = 1
    played_iterations: int = 1
    worker_bytes: int = 0  # memory that one more worker takes in a host
    questions: int = 1  # how many times the server asks hosts in a step, each after the last answer
    # Whether hosts work on the next question while the server works on an answer.
    overlaps: bool = False
    # Whether the server asks and goes on from each worker by itself. A step is then as many answers
    # as there are workers.
    by_arrival: bool = False
    in_groups: bool = False  # whether groups of workers do different things
    exchange: Exchange | None = None
    # Of placed clients. Those of the short run are then what takes time on hosts.
    placing: Placing | None = None
    # By row of the plan, what a paper says: a text, and the bytes that stand for {} in it.
    notes: Mapping[str, tuple[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedRun(Generic[S]):
    """What is known of a run before it begins."""

    settings: S
    models: "Models"
    class_counts: ClassCounts
    hosts: Sequence[Sequence[int]] = ()  # the workers of each
    least_parties: int = LEAST_PARTIES  # how many hosts the answers of a sum come from at least


def updates_setting(**others: str) -> Any:
    """Declares `--updates`, for algorithms that know both kinds, and others with what they do."""
    return setting(
        "sync",
        "What the generator waits for. sync: it learns through discriminators that have just "
        "stepped; async: through discriminators as they were before, so that neither waits for "
        "the other" + "".join(f"; {name}: {about}" for name, about in others.items()) + ".",
        one_of("sync", "async", *others),
    )


class Builder(ABC, Generic[S]):
    """Makes the two parts of an algorithm."""

    @abstractmethod
    def server(self, needs: ServerNeeds[S]) -> "ServerPart":
        """The server's part."""

    def host(self, needs: HostNeeds[S]) -> "HostPart":
        """A host's part, if there are hosts."""
        raise TypeError(f"{type(self).__name__} has no hosts: {needs.settings.algorithm}")

    def common_memory(
        self, _settings: S, _models: "Models", _hosts: "Mapping[int, Sequence[int]]"
    ) -> Any:
        """What some hosts, each with its workers, share with the server; None if nothing.

        It is made before their processes are forked, and given to all of them.

        Raises:
            OSError: the system has nothing of the kind.
        """
        return None

    @abstractmethod
    def message_sizes(self, settings: S, models: "Models") -> "MessageSizes":
        """How large the algorithm's messages can be."""

    def answer_operations(self, _settings: S, _models: "Models") -> float | None:
        """About how many floating-point operations a worker's answer takes.

        Returns:
            0 or more, by a forward pass alone; None where each worker should have a process of its
            own unless the user says otherwise.
        """
        return None

    def class_counts(self, shard: "Shard", _settings: S) -> list[int]:
        """How many samples of each class a worker holds."""
        return shard.class_counts()

    def check_kind(self, settings: S, kind: "SampleKind") -> None:
        """Refuses what the algorithm cannot train on of some kinds of samples, by BadInput."""

    def models(self, _settings: S, models: "Models", _kind: "SampleKind") -> "Models":
        """The models that the algorithm trains where settings and data say those."""
        return models

    def check_holdings(self, settings: S, class_counts: Mapping[int, Sequence[int]]) -> None:
        """Refuses what the algorithm cannot train on, where all is known before training."""

    def weigh_noise(
        self, _settings: S, _kind: "SampleKind", _noise: float, _sizes: Sequence[int]
    ) -> list[str]:
        """Says that noise σ hides what workers of some sizes tell; BadInput if all are here."""
        return []

    def describe(self, _run: PlannedRun[S]) -> list[tuple[str, str]]:
        """What `--dry-run` says of the algorithm: names and values."""
        return []

    def for_coverage(self, _settings: S) -> str:
        """Which flags may make samples more various, and what each costs; empty if none."""
        return ""

    def planning(
        self, settings: S, models: "Models", _class_counts: ClassCounts | None
    ) -> Planning[S]:
        """What `mdgan plan` must know of the algorithm; the default fits if steps are alike.

        Raises:
            BadInput: nothing can be said without the counts of each worker or client.
        """
        return Planning(settings, worker_bytes=self.message_sizes(settings, models).state_bytes)
