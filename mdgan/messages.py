"""The messages between the server and the hosts that every algorithm has.

Each function below makes one of them, and says what it holds; a few hold what their kind says.
Every algorithm has its own messages in its folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import Tensor


class Kind(StrEnum):
    """The kinds of message that links and the engine know; an algorithm names its own."""

    # While a host comes in, and when it has laid out its parcels with the server.
    HELLO = "HELLO"
    WELCOME = "WELCOME"
    LAIDOUT = "LAIDOUT"
    # Between the server and a host.
    READY = "READY"
    COPY = "COPY"
    STATE = "STATE"
    ADOPT = "ADOPT"
    LEAVE = "LEAVE"
    SPENT = "SPENT"
    STOP = "STOP"
    ATTEST = "ATTEST"
    KEYS = "KEYS"
    SURVIVORS = "SURVIVORS"
    UNMASK = "UNMASK"
    SPANS = "SPANS"
    ASKCOUNTS = "ASKCOUNTS"
    COUNTS = "COUNTS"  # host → server: tensor `counts`, of all its workers, int64
    LEARNT = "LEARNT"  # server → host, and → scorer: tensor `counts`, of all sites, float64
    CHECKPOINT = "CHECKPOINT"
    CHECKPOINTED = "CHECKPOINTED"
    # About scores: the scorer, the server, the hosts.
    EXTRACTOR = "EXTRACTOR"
    """Scorer → server → hosts: what `metrics.chosen.pack` gives; or field `reason` for none."""
    REAL = "REAL"
    GENERATOR = "GENERATOR"
    """Server → scorer: a generator's state, and field `held` for labels as the data have them."""
    SCORES = "SCORES"
    """Scorer → server: what a generator is worth; the fields are the record for the metrics."""


@dataclass(frozen=True)
class Message:
    """One message."""

    kind: str  # what it is, one to sixteen capital letters: a `Kind`, or one of the algorithm's
    iteration: int  # the global learning iteration it belongs to
    fields: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # tensors by name


def stop(iteration: int, reason: str, *, shut_out: bool = False, said: str = "") -> Message:
    """Server → host: training is over, at least for this host.

    Fields `reason`: empty if every iteration was done; `shut_out`: whether the others go on;
    `said`: what the server says of the run, for the host to sign; empty if there is nothing to.
    """
    fields = {"reason": reason, "shut_out": shut_out, "said": said}
    return Message(Kind.STOP, iteration, fields=fields)


def attest(iteration: int, attestation: Mapping[str, Any]) -> Message:
    """Host → server, after STOP: what it signs of the run, or why it does not (`Attestation`)."""
    return Message(Kind.ATTEST, iteration, fields=attestation)


def spans(
    iteration: int,
    rows: Sequence[Mapping[str, Any]],
    sent_bytes: Mapping[str, int],
    received_bytes: Mapping[str, int],
    memory_bytes: int = 0,
    fetching: Mapping[str, Any] | None = None,
    profile: Mapping[str, Any] | None = None,
    spent: Mapping[str, Mapping[str, float]] | None = None,
) -> Message:
    """Host → server, about once a second: what it did when, what it moved and what it holds.

    Fields `rows` (see `Tracer.take`), `sent_bytes` and `received_bytes` (by kind), and
    `memory_bytes` of the process; 0 if the host is no process of its own. Now and then `fetching`,
    how its workers waited for data; once `profile`, what it computed; `epsilon` and `replaced`,
    what the samples of workers have spent (see `Spending.told`).
    """
    fields = {
        "rows": list(rows),
        "sent_bytes": dict(sent_bytes),
        "received_bytes": dict(received_bytes),
        "memory_bytes": memory_bytes,
        **({} if fetching is None else {"fetching": dict(fetching)}),
        **({} if profile is None else {"profile": dict(profile)}),
        **(spent or {}),
    }
    return Message(Kind.SPANS, iteration, fields=fields)


def real(iteration: int, statistics: Mapping[str, Tensor], reason: str = "") -> Message:
    """Host → server → scorer: sums over the features of real samples, never a sample.

    Tensors as `RealStatistics.tensors` gives them; field `reason`: why there are none.
    """
    return Message(Kind.REAL, iteration, fields={"reason": reason}, tensors=statistics)


def ready(
    iteration: int,
    holds: Sequence[int],
    told: Mapping[str, Any] | None = None,
    key: Mapping[str, Any] | None = None,
) -> Message:
    """Host → server, after it joined or adopted: which of its workers can go on.

    Fields `holds`: the workers whose models are to be trained on as they are; `told`: what the
    algorithm's part on the server wants to know of this host, JSON values; `key`, if answers are
    masked: with which other hosts agree on secrets with this one.
    """
    fields = {"holds": list(holds), "told": dict(told or {})}
    return Message(Kind.READY, iteration, fields | ({"key": dict(key)} if key else {}))


def copy(iteration: int, worker: int, taker: int) -> Message:
    """Server → host: send a copy of a worker's models, for a host (`taker`) that has joined."""
    return Message(Kind.COPY, iteration, fields={"worker": worker, "taker": taker})


def state(
    iteration: int, states: Mapping[int, Mapping[str, Tensor]], purpose: str, taker: int = 0
) -> Message:
    """Host → server: states of some of its workers.

    Fields `purpose`: `copy` (the answer to COPY), `checkpoint` or `leave` (everything that the
    worker's next answer depends on); `taker`: the host that a copy is for. Tensors of `of_workers`.
    """
    fields = {"purpose": purpose, "taker": taker}
    return Message(Kind.STATE, iteration, fields, of_workers(states))


def adopt(iteration: int, states: Mapping[int, Mapping[str, Tensor]]) -> Message:
    """Server → host: states for those of its workers that have none to go on with.

    A worker gets its own of before or a copy of another's, or else keeps what it has. Tensors of
    `of_workers`.
    """
    return Message(Kind.ADOPT, iteration, tensors=of_workers(states))


def adopt_sealed(
    iteration: int, state: Message, giver: int, workers: Sequence[int], prefix: str
) -> Message:
    """Server → host: a STATE message's copy that another host has encrypted for it, unread.

    Fields `giver`; `workers` that the copy is for; `prefix` of the tensors that they may take;
    `given`: the iteration that the giver has encrypted it in. The tensor of `state`.
    """
    about = {"giver": giver, "workers": list(workers), "prefix": prefix, "given": state.iteration}
    return Message(Kind.ADOPT, iteration, about, state.tensors)


def leave(iteration: int) -> Message:
    """Host → server: this host was asked to stop and has sent its last answer."""
    return Message(Kind.LEAVE, iteration)


def spent(iteration: int, epsilon: Mapping[str, float]) -> Message:
    """Host → server: the budgets of workers are spent; comes before their last answer.

    Field `epsilon`: what its samples have then spent, by worker that can train no iteration more.
    """
    return Message(Kind.SPENT, iteration, fields={"epsilon": dict(epsilon)})


def checkpoint(iteration: int, kept: Sequence[int], *, to_server: bool) -> Message:
    """Server → host: save every worker as it is after iteration i, or send it `to_server`.

    Field `kept`: the earlier checkpoints that are still needed; hosts delete the files of others.
    """
    return Message(Kind.CHECKPOINT, iteration, {"kept": list(kept), "to_server": to_server})


def checkpointed(
    iteration: int, files: Mapping[int, Mapping[str, Any]], reason: str = ""
) -> Message:
    """Host → server: its workers are saved, or cannot be.

    Fields `files`: worker → what `StoredFile.as_record` gives; `reason`: why some could not be
    written, or empty.
    """
    records = {str(worker): dict(record) for worker, record in files.items()}
    return Message(Kind.CHECKPOINTED, iteration, {"files": records, "reason": reason})


def by_worker(message: Message) -> dict[int, dict[str, Tensor]]:
    """The states in a message such as STATE, by worker; ValueError if a name has none."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in message.tensors.items():
        worker, _, key = name.partition("/")
        states.setdefault(int(worker), {})[key] = tensor
    return states


def of_workers(states: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of a message that holds states: each is named `<worker>/<name in the state>`."""
    return {
        f"{worker}/{name}": tensor
        for worker, state in states.items()
        for name, tensor in state.items()
    }
