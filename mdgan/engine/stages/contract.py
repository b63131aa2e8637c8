"""What a stage is, and the two lists of stages that answers pass: a host's and the server's."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers, pack_answers
from mdgan.messages import Message

if TYPE_CHECKING:
    from mdgan.engine.parts import ServerPart
    from mdgan.engine.server.engine import Engine
    from mdgan.engine.server.hosts import Hosts
    from mdgan.engine.server.peers import Peers


@dataclass
class Leaving:
    """What the workers of a host answer, as for `pack_answers`. A stage takes away what it writes.

    Attributes:
        about: makes, by group, what stands for all that its hosts must be asked alike.
        check: called with this host, the workers of each host of a sum, and how many hosts a sum
            must have; raises `NotMasked` if the sum would tell what one of them has answered.
        fields: of the message, as far as it is written; its `tensors`, too.
    """

    question: Message
    answers: Mapping[int, Tensor]
    losses: Mapping[int, Tensor]
    groups: Mapping[int, int]
    beside: Mapping[str, Mapping[int, Tensor]] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    about: Callable[[], Mapping[int, bytes]] = dict
    check: Callable[[int, Mapping[int, Collection[int]], int], None] = lambda *_: None
    fields: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


class HostStage:
    """The host's half of a stage; what is not overridden changes nothing."""

    def write(self, leaving: Leaving) -> None:
        """Writes answers as it wants them to travel; those that are left the codec writes."""

    def waits(self, then: Callable[[], None]) -> bool:
        """Whether others wait for this host after its answer; if so, `then` is called after it."""
        del then
        return False


@dataclass(frozen=True)
class HostPath:
    """What the answers of a host pass, in order; the codec of the form comes last."""

    form: AnswerForm
    stages: Sequence[HostStage] = ()

    def pack(self, leaving: Leaving) -> Message:
        """Host → server: the answers of all the host's workers."""
        leaving.fields["workers"] = list(leaving.answers)
        for stage in self.stages:
            stage.write(leaving)
        given = leaving.answers, leaving.losses, leaving.groups
        rest = pack_answers(
            leaving.question.iteration, *given, self.form, leaving.beside, leaving.weights
        )
        fields = {**rest.fields, **leaving.fields}
        return replace(rest, fields=fields, tensors={**rest.tensors, **leaving.tensors})

    def when_free(self, then: Callable[[], None]) -> None:
        """The answer has left: calls `then` as soon as no other host waits for this one."""
        if not any(stage.waits(then) for stage in self.stages):
            then()


@dataclass(frozen=True)
class AskedHosts:
    """Hosts with the workers that are asked, by worker its group, and fields for their question."""

    hosts: "Hosts"
    groups: Mapping[int, int]
    fields: Mapping[str, Any] = field(default_factory=dict)


class ServerStage:
    """The server's half of a stage; what is not overridden changes nothing."""

    def begin(self, members: "Peers") -> None:
        """All hosts that take part from the start have joined.

        Raises:
            BadInput: there are too few.
        """

    def lacking(self, members: "Peers", workers: Collection[int]) -> str:
        """As `ServerPart.lacking`."""
        del members, workers
        return ""

    def most_groups(self, num_hosts: int, members: "Peers") -> int:
        """Into how many groups the answers of so many hosts may be divided."""
        del members
        return num_hosts

    def ask(self, asked: AskedHosts, engine: "Engine") -> AskedHosts:
        """Chooses among those that are to be asked, and adds to the question."""
        del engine
        return asked

    def collect(self, iteration: int, asked: AskedHosts, engine: "Engine") -> Answers | None:
        """Waits for answers in a way of its own; None if it has none."""
        del iteration, asked, engine
        return None


@dataclass(frozen=True)
class ServerPath:
    """What answers pass at the server before they are screened, in order."""

    form: AnswerForm
    stages: Sequence[ServerStage] = ()

    def begin(self, members: "Peers") -> None:
        """See `ServerStage`."""
        for stage in self.stages:
            stage.begin(members)

    def most_groups(self, wanted: int, hosts: "Hosts", members: "Peers") -> int:
        """Into how many groups answers are divided; at least 1."""
        limits = (stage.most_groups(len(hosts), members) for stage in self.stages)
        return max(1, min([wanted, *limits]))

    def ask(self, hosts: "Hosts", groups: Mapping[int, int], engine: "Engine") -> AskedHosts:
        """The hosts that are to be asked, and what for; groups are by worker."""
        asked = AskedHosts(hosts, groups)
        for stage in self.stages:
            asked = stage.ask(asked, engine)
        return asked

    def collect(
        self,
        iteration: int,
        asked: AskedHosts,
        engine: "Engine",
        weights: Mapping[int, float] | None = None,
    ) -> Answers:
        """Waits for the answers to a question; see `Collector.collect`."""
        for stage in self.stages:
            if (found := stage.collect(iteration, asked, engine)) is not None:
                return found
        return engine.collect(iteration, asked.hosts, weights)


def lacking(part: "ServerPart", members: "Peers", workers: Collection[int]) -> str:
    """Which workers an iteration of the algorithm, and of its stages, cannot do without."""
    of_stages = (stage.lacking(members, workers) for stage in part.stages)
    return part.lacking(workers) or next(filter(None, of_stages), "")
