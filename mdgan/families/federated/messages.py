"""The messages of a round: the server sends models and tasks, hosts send models or their sums."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import e, exp, isfinite
from typing import Annotated, Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.hello import MOST_CLASSES
from mdgan.engine.host_keys import NotMasked
from mdgan.families.federated.settings import MOST_SLOTS, FederatedSettings
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.exact_sum import WEIGHTED, FixedPoint
from mdgan.messages import Message
from mdgan.privacy.masks import threshold

ROUND = "ROUND"  # server → host: train these clients
UPDATE = "UPDATE"  # host → server: their models, or the sum of these
TRAINED = "TRAINED"
"""Host → server, before the UPDATE of a placed round: which clients trained, for how long."""
MODELS = "MODELS"
"""Host → server, before TRAINED: a `client` and its `models`, for rules that must see them all."""

ASKCLASSES = "ASKCLASSES"
"""Server → host, once: how many samples of each class do your clients hold?"""
CLASSES_FORM = AnswerForm("CLASSES", (MOST_CLASSES,), arithmetic=FixedPoint(1.0, 2.0**48))
"""The answer to ASKCLASSES: whole numbers, in a secure sum."""

LEAST_PART = exp(-1 / e)
"""The least factor e^(−s_k) by which a client reduces its weight in secret: s_k is at most 1/e."""

OF_A_CLIENT_BYTES = 256  # the JSON of one client in a message

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Kind = Annotated[str, msgspec.Meta(max_length=120, pattern=r"\A[ -~]*\Z")]
Offer = Annotated[list[_Kind], msgspec.Meta(min_length=1, max_length=MOST_SLOTS)]
"""The kind of each slot for the next round, such as a processor's name; it decides the speed."""
_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_Weight = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
_Classes = Annotated[
    list[Annotated[int, msgspec.Meta(ge=0, lt=2**48)]], msgspec.Meta(max_length=MOST_CLASSES)
]
_Lists = Annotated[
    list[list[tuple[_Count, _Count, _Count, _Weight]]], msgspec.Meta(max_length=MOST_SLOTS)
]


@dataclass(frozen=True)
class Load:
    """How much a client trains in one round: E_k iterations, of batches of at most B_k."""

    iterations: int
    batch_size: int


class ClientTask(NamedTuple):
    """How much one client trains in a round, and the weight of its models in the sum."""

    client: int
    load: Load
    weight: float


@dataclass(frozen=True)
class RoundPlan:
    """The order of a round: the models, of `ModelVector.shape`, and the chosen clients' tasks."""

    number: int
    iteration: int
    models: Tensor
    tasks: Mapping[int, ClientTask]


Lists = Sequence[Sequence[ClientTask]]
"""For each slot of a host, its tasks in order; a single list if clients are not placed."""


class ClientReport(msgspec.Struct, frozen=True):
    """How a slot has trained one client; `begin` counts the seconds since the round began.

    If a client's models are not finite, the slot leaves them out of its sum, and losses are 0.
    """

    client: int
    slot: Annotated[int, msgspec.Meta(ge=0, lt=MOST_SLOTS)]
    begin: _Seconds
    seconds: _Seconds
    losses: tuple[float, float]
    usable: bool = True


class HostReport(msgspec.Struct, frozen=True):
    """A host's report of a placed round, beside the sum: all its clients, and its next offer."""

    trained: list[ClientReport]
    offer: Offer


def update_form(settings: FederatedSettings, shape: tuple[int, ...]) -> AnswerForm:
    """The answer of a host; the models of a client are one vector of this shape.

    Clients that weigh their models in secret send one block more; see `with_weight`.
    """
    shape = (shape[0] + settings.weighs_in_secret, *shape[1:])
    is_bounded = settings.privacy.hides_clients and not settings.shares_noise
    most_norm = settings.privacy.update_clip if is_bounded else None
    codec = Codec.of(settings.wire.models)
    sums = settings.adds_up or settings.placing.clients is not None
    return AnswerForm(UPDATE, shape, codec, sums=sums, arithmetic=WEIGHTED, most_norm=most_norm)


def order(
    iteration: int, models: Tensor, lists: Lists, sums: Mapping[str, Any] | None = None
) -> Message:
    """Server → host: train these models, float32 `ModelVector.shape`, until iteration i.

    `sums` are the fields of `AskedHosts`. If hosts mask models, the list has the tasks of all
    workers of the sum, so that hosts can check that the server sends the same list to each of them.
    """
    rows = [[[n, load.iterations, load.batch_size, w] for n, load, w in tasks] for tasks in lists]
    return Message(ROUND, iteration, {"lists": rows, **(sums or {})}, tensors={"models": models})


def read_order(
    message: Message, shape: tuple[int, ...], num_clients: int | None = None
) -> tuple[Tensor, list[list[ClientTask]]]:
    """Reads the models and lists of a ROUND message; `ValueError` if it is malformed."""
    models = message.tensors.get("models", torch.empty(0))
    if models.shape != shape or models.dtype != torch.float32:
        raise ValueError(f"models of shape {list(models.shape)}, {models.dtype}")
    lists: Any = msgspec.convert(message.fields.get("lists"), _Lists)
    clients = [client for tasks in lists for client, *_ in tasks]
    if len(set(clients)) < len(clients) or max(clients, default=1) > (num_clients or 2**31):
        raise ValueError(f"each of the clients 1 to {num_clients or 'N'} may be there once")
    if message.iteration < 1:
        raise ValueError(f"iteration {message.iteration}")
    return models, [[ClientTask(n, Load(i, b), w) for n, i, b, w in rows] for rows in lists]


def digest_of(order: Message) -> bytes:
    """SHA-256 of what the server must send alike to all hosts of a sum: tasks, models, classes."""
    fields = json.dumps([order.fields["lists"], order.fields.get("classes")]).encode()
    return sha256(fields + order.tensors["models"].numpy().tobytes()).digest()


def read_classes(order: Message) -> list[int]:
    """How many samples of each class all clients hold, by a ROUND message, or `ValueError`."""
    return msgspec.convert(order.fields.get("classes"), _Classes)


def with_weight(models: Tensor) -> Tensor:
    """Models with a 1 appended: a weighted sum of these ends with the sum of the weights."""
    block = torch.zeros_like(models[:1])
    block[0, 0] = 1.0
    return torch.cat([models, block])


def check_weights(
    host: int,
    carried: Mapping[int, Collection[int]],
    least: int,
    *,
    weights: Mapping[int, float],
    uniform: bool,
    least_part: float = 1.0,
) -> None:
    """Checks that no worker of a host weighs so much that the sum is almost its answer alone.

    Hosts may drop out. So a worker's weight is compared with that of the lightest hosts, of as many
    as must survive (`least`). These may reduce their weights in secret, to `least_part` at most.

    Raises:
        NotMasked: a weight is not one, or is of a worker that no host of the sum has; or one worker
            of this host has 1 / (least - 1) of the weight, or more.
    """
    if not weights.keys() <= {worker for workers in carried.values() for worker in workers}:
        raise NotMasked("it gives weights to workers that no host of the sum has")
    if not all(isfinite(weight) and weight >= 0 for weight in weights.values()):
        raise NotMasked("it gives weights that are none")
    if uniform and len(set(weights.values())) > 1:
        raise NotMasked("it gives workers different weights, and the run has --weighting uniform")
    of_host = {h: sum(weights.get(n, 0.0) for n in workers) for h, workers in carried.items()}
    others = sorted(weight for h, weight in of_host.items() if h != host)
    survive = max(least, threshold(len(carried)))
    total = of_host[host] + sum(others[: survive - 1])
    heaviest = max(carried[host], key=lambda worker: weights.get(worker, 0.0))
    weight = weights.get(heaviest, 0.0)
    total = weight + least_part * (total - weight)
    if not weight * (least - 1) < total:
        raise NotMasked(
            f"rank {heaviest} has {weight / (total or 1.0):.0%} of the weight "
            f"of a sum, and a host that insists on {least} hosts gives less than "
            f"{1 / (least - 1):.0%}"
        )


def report_message(iteration: int, report: HostReport) -> Message:
    """Host → server: a TRAINED message with the report's fields."""
    return Message(TRAINED, iteration, msgspec.to_builtins(report))


def read_report(message: Message) -> HostReport:
    """Reads a TRAINED message; `ValueError` if it is malformed."""
    return msgspec.convert(dict(message.fields), HostReport)


def read_offer(hello: Mapping[str, Any]) -> Offer:
    """The last offer of a host; empty if it is malformed."""
    try:
        offer: Offer = msgspec.convert(hello.get("offer"), Offer)
    except msgspec.ValidationError:
        return []
    return offer


def sum_message(
    iteration: int, rank: int, total: Tensor, reports: Sequence[ClientReport]
) -> Message:
    """Host → server: an UPDATE with Σ w_k · x_k over its clients, float64, and mean losses."""
    losses = torch.tensor([report.losses for report in reports]).mean(0)
    fields = {"workers": [rank], "summed": [[rank]]}
    tensors = {"losses": losses[None], **FP32.encode(total[None], "sums.")}
    return Message(UPDATE, iteration, fields, tensors=tensors)
