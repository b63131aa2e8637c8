"""What happens to answers between learners and the screening; a family picks it when it is built.

Here the server sees every answer. Where it sees sums alone, `HostMask` and `ServerMask` derive. A
host that carries several workers may add their answers up before it sends them, where the algorithm
needs only sums.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.answers import ANSWERS, LEAST_TO_SUM, AnswerForm, Answers
from mdgan.engine.host.protocol import Turn
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.server.peers import Peers
from mdgan.gan.exact_sum import PartialSum
from mdgan.gan.model_state import State, part_of
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
        return pack_answers(
            leaving.question.iteration,
            leaving.answers,
            leaving.losses,
            groups=leaving.groups,
            form=self.form,
            beside=leaving.beside,
            weights=leaving.weights,
        )

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

    def ask_for_sum(
        self, kind: str, engine: Engine, form: AnswerForm, fields: Mapping[str, Any] = {}
    ) -> list[PartialSum]:
        """Has all workers answer in one sum, once; its parts, or none if none came."""
        iteration = engine.done + 1
        hosts = engine.peers.taking_part()
        asked = self.ask(hosts, dict.fromkeys(workers_of(hosts), 0), engine)
        question = Message(kind, iteration, {**asked.fields, **fields})
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
        return engine.collector.collect(iteration, asked.hosts, weights, form=form)


# How answers travel.


def pack_answers(
    iteration: int,
    answers: Mapping[int, Tensor],
    losses: Mapping[int, Tensor],
    groups: Mapping[int, int],
    form: AnswerForm,
    beside: Mapping[str, Mapping[int, Tensor]] | None = None,
    weights: Mapping[int, float] | None = None,
) -> Message:
    """Host → server: the answers of all the host's workers, one by one or added up.

    Args:
        answers: by worker, float32 of the form's shape; maybe none.
        losses: J_disc and J_gen by worker, float32 [2].
        groups: by worker, which answers may be added up with its own: those of the same group.
        beside: name → worker → tensor.
        weights: of workers in sums, if the form's arithmetic has any.

    Returns:
        fields `workers`, and `summed`: a list of workers for every sum. Tensors in the order of
        `workers`: `losses`, float32 [W, 2]; those of `beside`, float32 [W, …], one after the other
        if they are not all of one shape; and, as the codec writes them, `answers.…` of the workers
        that are in no sum. In the order of `summed`: `sums.…`, too, float64 if the codec is exact.
    """
    if not answers:  # a stage has written all of them
        return Message(form.kind, iteration)
    codec, arithmetic = form.codec, form.arithmetic
    members: dict[int, list[int]] = {}
    for worker, group in groups.items() if form.sums else ():
        if isfinite(float(answers[worker].sum())):  # a broken answer travels alone, to be refused
            members.setdefault(group, []).append(worker)
    to_sum = [added for added in members.values() if len(added) >= LEAST_TO_SUM]
    singly = _others(answers, to_sum)
    tensors = {"losses": torch.stack([losses[worker] for worker in answers])}
    for name in form.beside:
        rows = [(beside or {})[name][worker].float() for worker in answers]
        alike = len({row.shape for row in rows}) == 1
        tensors[name] = torch.stack(rows) if alike else torch.cat(rows)
    if singly:
        first, *others = (answers[worker] for worker in singly)
        alone = torch.stack([first, *others]) if others else first.unsqueeze(0)  # without a copy
        tensors |= codec.encode(alone, "answers.")
    if to_sum:
        parts = ({n: answers[n] for n in group} for group in to_sum)
        sums = torch.stack([arithmetic.add_up(part, weights or {}) for part in parts])
        tensors |= codec.encode(sums if codec.is_exact else sums.float(), "sums.")
    return Message(
        form.kind, iteration, {"workers": list(answers), "summed": to_sum}, tensors=tensors
    )


def in_one_message(answers: Sequence[Message]) -> Message:
    """What `pack_answers` gave for several forms: kind → fields; tensors named `<kind>/<name>`."""
    first, *others = answers
    if not others:
        return first
    fields = {answer.kind: dict(answer.fields) for answer in answers}
    tensors = {f"{a.kind}/{name}": tensor for a in answers for name, tensor in a.tensors.items()}
    return Message(ANSWERS, first.iteration, fields, tensors=tensors)


def of_kind(message: Message, kind: str) -> Message:
    """What a host has answered in one form; an empty message if nothing."""
    if message.kind == kind:
        return message
    fields = message.fields.get(kind) if message.kind == ANSWERS else None
    given = fields if isinstance(fields, Mapping) else {}
    return Message(kind, message.iteration, given, tensors=part_of(message.tensors, f"{kind}/"))


def read_answers(
    message: Message, form: AnswerForm, forms: Mapping[int, AnswerForm] | None = None
) -> Answers:
    """Reads what `pack_answers` wrote; there are no answers in what a hostile host malformed.

    Args:
        forms: by worker, if the shapes of what they send beside differ.
    """
    fields, tensors = message.fields, message.tensors
    workers, groups = _ranks(fields.get("workers")), fields.get("summed", [])
    groups = [_ranks(group) for group in groups] if isinstance(groups, list) else []
    singly = _others(workers, groups)
    losses = tensors.get("losses", torch.empty(0))
    all_named = [*singly, *(worker for group in groups for worker in group)]
    if losses.shape != (len(workers), 2) or losses.dtype != torch.float32:
        return Answers()
    if len(set(workers)) < len(workers) or sorted(all_named) != sorted(workers):
        return Answers()
    if not all(groups) or (groups and not form.sums):  # of no worker, or hidden from the algorithm
        return Answers()
    try:
        alone = _decoded(tensors, "answers.", len(singly), form=form)
        sums = _decoded(tensors, "sums.", len(groups), form=form)
    except (ValueError, KeyError, RuntimeError):
        return Answers()
    beside = {}
    for name in form.beside:
        shapes = {n: (forms or {}).get(n, form).beside[name] for n in workers}
        beside[name] = _rows(tensors.get(name), shapes)
    return Answers(
        dict(zip(singly, alone, strict=True)),
        [PartialSum(tuple(group), row) for group, row in zip(groups, sums, strict=True)],
        dict(zip(workers, losses, strict=True)),
        beside=beside,
    )


def _rows(sent: Tensor | None, shapes: Mapping[int, tuple[int, ...]]) -> dict[int, Tensor]:
    """What each worker sent beside its answer; nothing if the shapes are others."""
    alike = len(set(shapes.values())) <= 1
    sizes = [1 if alike else shape[0] for shape in shapes.values()]
    if sent is None or sent.shape[:1] != (sum(sizes),):
        return {}
    rows = sent.unbind() if alike else torch.split(sent, sizes)
    return dict(zip(shapes, rows, strict=True))


def _others(workers: Iterable[int], groups: Iterable[Iterable[int]]) -> list[int]:
    grouped = {worker for group in groups for worker in group}
    return [worker for worker in workers if worker not in grouped]


def _ranks(given: object) -> list[int]:
    if isinstance(given, list) and all(type(worker) is int for worker in given):
        return given
    return []


def _decoded(
    tensors: Mapping[str, Tensor], under: str, count: int, form: AnswerForm
) -> Sequence[Tensor]:
    if not count and not any(name.startswith(under) for name in tensors):
        return ()
    rows = form.codec.decode(tensors, form.shape, under)
    if len(rows) != count:
        raise ValueError(f"{len(rows)} answers of {count} workers")
    return rows.unbind(0)
