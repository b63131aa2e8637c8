"""How answers travel from a host to the screening: left open here, or masked for secure sums.

A family picks one when it is built. With `HostPath` and `ServerPath` the server sees every answer;
`HostMask` and `ServerMask` derive from them, and the server sees sums alone. Where the algorithm
needs only sums, a host with several workers may add up their answers before it sends them.
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
    """The answers of a host's workers to one question; see `pack_answers` for most fields."""

    question: Message
    answers: Mapping[int, Tensor]
    losses: Mapping[int, Tensor]
    groups: Mapping[int, int]
    beside: Mapping[str, Mapping[int, Tensor]] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    # Makes, by group, a digest of all that the server must ask the hosts of a sum alike.
    about: Callable[[], Mapping[int, bytes]] = dict
    # Gets this host, the workers of each host of a sum, and the least number of hosts of a sum;
    # raises `NotMasked` if the sum would show the answer of one worker.
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
        """Answers that go into one sum and have no losses, such as counts before training."""
        losses, groups = dict.fromkeys(answers, torch.zeros(2)), dict.fromkeys(answers, 0)
        return cls(question, answers, losses, groups, about=lambda: {0: about}, form=form)


class HostPath:
    """The host's side: here the server sees every answer. `pack` writes answers of the `form`."""

    hides_answers = False  # whether the server sees sums alone
    rules: Mapping[str, Turn] = {}  # when the host accepts the kinds of message in `handlers`

    def __init__(self, form: AnswerForm = _NO_FORM) -> None:
        self.form = form

    def begin(self, _run: bytes) -> Mapping[str, Any] | None:
        """The host calls it as it joins a server; returns what it must tell other hosts."""
        return None

    def handlers(self, _tracer: Tracer) -> Mapping[str, Callable[[Message, HostTransport], object]]:
        """By kind of message, its handler, beside those of the algorithm."""
        return {}

    def num_sharers(self, _question: Message) -> int:
        """M: how many hosts' parts make the whole noise; 1 where the server sees every answer."""
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
        """The host calls it after its answer; calls `then` once no other host waits for it."""
        then()

    def adopted(self, message: Message) -> Mapping[int, State]:
        """By worker, the states in an ADOPT message."""
        return messages.by_worker(message)

    # Messages between hosts.

    def parcel(self, _taker: int, message: Message) -> Message | None:
        """A message in the form in which another host gets it; None if this host lacks its key."""
        return message

    def opened(self, _giver: int, _kind: str, _iteration: int, parcel: Message) -> State:
        """The tensors in a parcel from another host.

        Raises:
            ValueError: the other host has not made it, or not for this host.
        """
        return parcel.tensors


@dataclass(frozen=True)
class AskedHosts:
    """The hosts that the server asks, with their workers; groups by worker; and fields to send."""

    hosts: Hosts
    groups: Mapping[int, int]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class ServerPath:
    """The server's side: it chooses the hosts to ask, and waits for their answers."""

    form: AnswerForm
    hides_answers = False  # whether the server sees sums alone

    def begin(self, members: Peers) -> None:
        """The server calls it when all hosts of the start have joined.

        Raises:
            BadInput: there are too few hosts.
        """

    def lacking(self, _members: Peers, _workers: Collection[int]) -> str:
        """See `ServerPart.lacking`."""
        return ""

    def num_sharers(self, _hosts: Collection[int], _members: Peers) -> int:
        """M: how many hosts' parts make the whole noise; 1 where the server sees every answer."""
        return 1

    def hosts_to_ask(self, hosts: Hosts, _members: Peers) -> Hosts:
        """Selects the hosts that the server can ask next."""
        return hosts

    def look_closer(self) -> None:
        """Makes the next sums of few hosts, drawn anew, to find a host that spoils sums."""

    def gives_up_search(self) -> bool:
        """Pauses the search of `look_closer`, so that all hosts are asked; False if none is on."""
        return False

    def most_groups(self, wanted: int, _hosts: Hosts, _members: Peers) -> int:
        """Into how many groups the answers of these hosts can be divided, up to `wanted`."""
        return wanted

    def ask(self, hosts: Hosts, groups: Mapping[int, int], _engine: Engine) -> AskedHosts:
        """Chooses the hosts to ask, and the fields of the question; groups are by worker."""
        return AskedHosts(hosts, groups)

    def ask_for_sum(
        self, kind: str, engine: Engine, form: AnswerForm, fields: Mapping[str, Any] = {}
    ) -> list[PartialSum]:
        """Asks all workers for one sum, once; returns its parts, maybe none."""
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
        groups: by worker; the host may add up answers of the same group.
        beside: name → worker → tensor.
        weights: by worker in sums, if the form's arithmetic has weights.

    Returns:
        Fields `workers`, and `summed`: a list of workers for every sum. Tensors in the order of
        `workers`: `losses`, float32 [W, 2]; those of `beside`, float32 [W, …], concatenated if
        their shapes differ; and, as the codec writes them, `answers.…` of workers that are in no
        sum. In the order of `summed`: `sums.…`, float64 if the codec is exact.
    """
    if not answers:
        return Message(form.kind, iteration)
    codec, arithmetic = form.codec, form.arithmetic
    members: dict[int, list[int]] = {}
    for worker, group in groups.items() if form.sums else ():
        if isfinite(float(answers[worker].sum())):  # the server must see broken answers alone
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
    """Merges messages of `pack_answers` into one: kind → fields; tensors `<kind>/<name>`."""
    first, *others = answers
    if not others:
        return first
    fields = {answer.kind: dict(answer.fields) for answer in answers}
    tensors = {f"{a.kind}/{name}": tensor for a in answers for name, tensor in a.tensors.items()}
    return Message(ANSWERS, first.iteration, fields, tensors=tensors)


def of_kind(message: Message, kind: str) -> Message:
    """A host's answers of one kind, as `pack_answers` wrote them; an empty message if none."""
    if message.kind == kind:
        return message
    value = message.fields.get(kind) if message.kind == ANSWERS else None
    fields = value if isinstance(value, Mapping) else {}
    return Message(kind, message.iteration, fields, tensors=part_of(message.tensors, f"{kind}/"))


def read_answers(
    message: Message, form: AnswerForm, forms: Mapping[int, AnswerForm] | None = None
) -> Answers:
    """Reads a message of `pack_answers`; a malformed one, of a hostile host, has no answers.

    Args:
        forms: by worker, if the shapes of their tensors `beside` differ.
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
    if not all(groups) or (groups and not form.sums):  # empty sums, or sums where none may be
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
    """By worker, the rows of one tensor `beside` its answer; empty if the tensor does not fit."""
    alike = len(set(shapes.values())) <= 1
    sizes = [1 if alike else shape[0] for shape in shapes.values()]
    if sent is None or sent.shape[:1] != (sum(sizes),):
        return {}
    rows = sent.unbind() if alike else torch.split(sent, sizes)
    return dict(zip(shapes, rows, strict=True))


def _others(workers: Iterable[int], groups: Iterable[Iterable[int]]) -> list[int]:
    grouped = {worker for group in groups for worker in group}
    return [worker for worker in workers if worker not in grouped]


def _ranks(value: object) -> list[int]:
    return value if isinstance(value, list) and all(type(worker) is int for worker in value) else []


def _decoded(
    tensors: Mapping[str, Tensor], under: str, count: int, form: AnswerForm
) -> Sequence[Tensor]:
    if not count and not any(name.startswith(under) for name in tensors):
        return ()
    rows = form.codec.decode(tensors, form.shape, under)
    if len(rows) != count:
        raise ValueError(f"{len(rows)} answers of {count} workers")
    return rows.unbind(0)
