"""What happens to answers between learners and the screening; a family picks it when it is built.

Here the server sees every answer. Where it sees sums alone, `HostMask` and `ServerMask` derive.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.answers import AnswerForm, Answers, pack_answers
from mdgan.engine.host.protocol import Turn
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.server.peers import Peers
from mdgan.gan.exact_sum import PartialSum
from mdgan.gan.model_state import State
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport

_NO_FORM = AnswerForm("", ())


@dataclass(frozen=True)
class Leaving:
    """What the workers of a host answer, as for `pack_answers`."""

    question: Message
    answers: Mapping[int, Tensor]
    losses: Mapping[int, Tensor]
    groups: Mapping[int, int]
    beside: Mapping[str, Mapping[int, Tensor]] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    # Makes, by group, what stands for all that its hosts must be asked alike.
    about: Callable[[], Mapping[int, bytes]] = dict
    # Called with this host, the workers of each host of a sum, and how many hosts a sum must have;
    # raises `NotMasked` if the sum would tell what one of them has answered.
    check: Callable[[int, Mapping[int, Collection[int]], int], None] = lambda *_: None
    form: AnswerForm | None = None  # of these answers; None for the form of the path

    @classmethod
    def in_one_sum(
        cls,
        question: Message,
        answers: Mapping[int, Tensor],
        about: bytes,
        form: AnswerForm | None = None,
    ) -> "Leaving":
        """What workers tell before training, or instead of it: in one sum, without losses."""
        losses, groups = dict.fromkeys(answers, torch.zeros(2)), dict.fromkeys(answers, 0)
        return cls(question, answers, losses, groups, about=lambda: {0: about}, form=form)


class HostPath:
    """How the answers of a host leave, and what tells of them: here the server may see all of it.

    The form is that of answers which `pack` writes.
    """

    hides_answers = False  # whether the server sees sums alone
    rules: Mapping[str, Turn] = {}  # when the kinds of message that it handles may come

    def __init__(self, form: AnswerForm = _NO_FORM) -> None:
        self.form = form

    def begin(self, _run: bytes) -> Mapping[str, Any] | None:
        """The host joins a server; returns what other hosts must know of it."""
        return None

    def handlers(self, _tracer: Tracer) -> Mapping[str, Callable[[Message, HostTransport], None]]:
        """By kind of message, what carries it out, beside those of the algorithm."""
        return {}

    def num_sharers(self, _question: Message) -> int:
        """By how many hosts' parts the noise in what the server sees of the answers is enough."""
        return 1

    def pack(self, leaving: Leaving) -> Message:
        """Host → server: the answers of all the host's workers."""
        given = leaving.answers, leaving.losses, leaving.groups
        iteration = leaving.question.iteration
        return pack_answers(iteration, *given, self.form, leaving.beside, leaving.weights)

    def when_free(self, then: Callable[[], None]) -> None:
        """The answer has left: calls `then` as soon as no other host waits for this one."""
        then()

    def adopted(self, message: Message) -> Mapping[int, State]:
        """By worker, the states in an ADOPT message."""
        return messages.by_worker(message)

    # What hosts hand to each other.

    def parcel(self, _taker: int, message: Message) -> Message | None:
        """A message for another host; None if only the server could read it."""
        return message

    def opened(self, _giver: int, _kind: str, _iteration: int, parcel: Message) -> State:
        """The tensors of what another host has made a parcel of.

        Raises:
            ValueError: it has not, or not for this host.
        """
        return parcel.tensors


@dataclass(frozen=True)
class AskedHosts:
    """Hosts with the workers that are asked, by worker its group, and fields for their question."""

    hosts: Hosts
    groups: Mapping[int, int]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class ServerPath:
    """How the server asks for answers, and waits for them."""

    form: AnswerForm
    hides_answers = False  # whether the server sees sums alone

    def begin(self, members: Peers) -> None:
        """All hosts that take part from the start have joined.

        Raises:
            BadInput: there are too few.
        """

    def lacking(self, _members: Peers, _workers: Collection[int]) -> str:
        """As `ServerPart.lacking`."""
        return ""

    def num_sharers(self, _hosts: Collection[int], _members: Peers) -> int:
        """By how many hosts' parts the noise of some hosts' answers is enough."""
        return 1

    def able(self, hosts: Hosts, _members: Peers) -> Hosts:
        """Those of some hosts that the next question can be for."""
        return hosts

    def look_closer(self) -> None:
        """Some answers do not fit the others: the next sums are of few hosts, drawn anew."""

    def gives_up_search(self) -> bool:
        """Takes all hosts next time, since those of `able` do not do; False if these were all."""
        return False

    def most_groups(self, wanted: int, _hosts: Hosts, _members: Peers) -> int:
        """Into how many groups the answers of some hosts are divided; at least 1."""
        return wanted

    def ask(self, hosts: Hosts, groups: Mapping[int, int], _engine: Engine) -> AskedHosts:
        """The hosts that are to be asked, and what for; groups are by worker."""
        return AskedHosts(hosts, groups)

    def ask_for_sum(self, kind: str, engine: Engine, form: AnswerForm) -> list[PartialSum]:
        """Has all workers answer in one sum, once; its parts, or none if none came."""
        iteration, hosts = engine.done + 1, engine.peers.taking_part()
        asked = self.ask(hosts, dict.fromkeys(workers_of(hosts), 0), engine)
        question = Message(kind, iteration, asked.fields)
        engine.ask(iteration, asked.hosts, lambda _: question)
        return list(self.collect(iteration, asked, engine, form=form).sums)

    def collect(
        self,
        iteration: int,
        asked: AskedHosts,
        engine: Engine,
        weights: Mapping[int, float] | None = None,
        form: AnswerForm | None = None,
    ) -> Answers:
        """Waits for the answers to a question; see `Collector.collect`."""
        return engine.collect(iteration, asked.hosts, weights, form)
