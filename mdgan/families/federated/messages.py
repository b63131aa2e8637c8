"""The messages of a round: models and tasks go out, models come back, or one sum of each host."""

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
UPDATE = "UPDATE"  # host → server: what they found
TRAINED = "TRAINED"
"""Host → server, before the UPDATE of a placed round: who was trained, for how long."""
MODELS = "MODELS"
"""Host → server, before TRAINED: a `client` and its `models`, where a rule must see them all."""

ASKCLASSES = "ASKCLASSES"
"""Server → host, once: how many samples of each class do your clients hold?"""
CLASSES_FORM = AnswerForm("CLASSES", (MOST_CLASSES,), arithmetic=FixedPoint(1.0, 2.0**48))
"""How hosts answer that: whole numbers, in a secure sum."""

LEAST_PART = exp(-1 / e)
"""What a client that weighs its models itself makes of its weight at least: e^(−s), s at most."""

OF_A_CLIENT_BYTES = 256  # what a client adds to the JSON of a message

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Kind = Annotated[str, msgspec.Meta(max_length=120, pattern=r"\A[ -~]*\Z")]
Offer = Annotated[list[_Kind], msgspec.Meta(min_length=1, max_length=MOST_SLOTS)]
"""The slots for the next round, by kind, such as a processor's name: equally fast ones."""
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
    """What a client does in one round: at most E iterations, of batches of at most B."""

    iterations: int
    batch_size: int


class ClientTask(NamedTuple):
    """What one client does in a round, and the weight of its models in the sum."""

    client: int
    load: Load
    weight: float


@dataclass(frozen=True)
class RoundPlan:
    """What is to be trained: chosen clients' tasks, on models of `ModelVector.shape`, until i."""

    number: int
    iteration: int
    models: Tensor
    tasks: Mapping[int, ClientTask]


Lists = Sequence[Sequence[ClientTask]]
"""For each slot of a host, what it does in order; one list if clients are not placed."""


class ClientReport(msgspec.Struct, frozen=True):
    """One client has been trained in a slot, from so many seconds after the round began.

    Models that are not finite are in no sum, and have losses of 0.
    """

    client: int
    slot: Annotated[int, msgspec.Meta(ge=0, lt=MOST_SLOTS)]
    begin: _Seconds
    seconds: _Seconds
    losses: tuple[float, float]
    usable: bool = True


class HostReport(msgspec.Struct, frozen=True):
    """What a host tells of a placed round besides the sum: all its clients, and its next offer."""

    trained: list[ClientReport]
    offer: Offer


def update_form(settings: FederatedSettings, shape: tuple[int, ...]) -> AnswerForm:
    """How a host answers, both models of a client being one vector of this shape.

    Clients that weigh their models themselves have one block more; see `with_weight`.
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

    `sums` is what the stages of the answers want to say. If models are masked, the list has the
    tasks of all workers of the sum, so that hosts see that each of them is told the same.
    """
    told = [[[n, load.iterations, load.batch_size, w] for n, load, w in own] for own in lists]
    return Message(ROUND, iteration, {"lists": told, **(sums or {})}, tensors={"models": models})


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
    return models, [[ClientTask(n, Load(i, b), weight) for n, i, b, weight in own] for own in lists]


def digest_of(order: Message) -> bytes:
    """SHA-256 of what all hosts of a sum must be told alike: tasks, models, and what all hold."""
    told = json.dumps([order.fields["lists"], order.fields.get("classes")]).encode()
    return sha256(told + order.tensors["models"].numpy().tobytes()).digest()


def read_classes(order: Message) -> list[int]:
    """How many samples of each class all clients hold, by a ROUND message, or `ValueError`."""
    return msgspec.convert(order.fields.get("classes"), _Classes)


def with_weight(models: Tensor) -> Tensor:
    """Models, and after them a 1: the sum of these, weighted, ends with the sum of the weights."""
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

    As hosts may drop out, only those that weigh least count, of as many as must survive (`least`).
    A worker may weigh less than told, down to this part of it.

    Raises:
        NotMasked: a weight is none, or of a worker that no host of the sum has; or one worker of
            this host has 1 / (least - 1) of the weight, or more.
    """
    if not weights.keys() <= {worker for own in carried.values() for worker in own}:
        raise NotMasked("it gives weights to workers that no host of the sum has")
    if not all(isfinite(weight) and weight >= 0 for weight in weights.values()):
        raise NotMasked("it gives weights that are none")
    if uniform and len(set(weights.values())) > 1:
        raise NotMasked("it gives workers different weights, and the run has --weighting uniform")
    of_host = {h: sum(weights.get(worker, 0.0) for worker in own) for h, own in carried.items()}
    others = sorted(weight for h, weight in of_host.items() if h != host)
    survive = max(least, threshold(len(carried)))
    left = of_host[host] + sum(others[: survive - 1])
    heaviest = max(carried[host], key=lambda worker: weights.get(worker, 0.0))
    weight = weights.get(heaviest, 0.0)
    left = weight + least_part * (left - weight)
    if not weight * (least - 1) < left:
        raise NotMasked(
            f"rank {heaviest} has {weight / (left or 1.0):.0%} of the weight "
            f"of a sum, and a host that insists on {least} hosts gives less than "
            f"{1 / (least - 1):.0%}"
        )


def report_message(iteration: int, report: HostReport) -> Message:
    """A TRAINED message, with the fields of the report."""
    return Message(TRAINED, iteration, msgspec.to_builtins(report))


def read_report(message: Message) -> HostReport:
    """Reads a TRAINED message; `ValueError` if it is malformed."""
    return msgspec.convert(dict(message.fields), HostReport)


def read_offer(told: Mapping[str, Any]) -> Offer:
    """What a host offered last; empty if it makes no sense."""
    try:
        offer: Offer = msgspec.convert(told.get("offer"), Offer)
    except msgspec.ValidationError:
        return []
    return offer


def sum_message(
    iteration: int, rank: int, total: Tensor, reports: Sequence[ClientReport]
) -> Message:
    """An UPDATE of a rank with Σ w_k · x_k over a host's clients, float64, and mean losses."""
    losses = torch.tensor([each.losses for each in reports]).mean(0)
    fields = {"workers": [rank], "summed": [[rank]]}
    tensors = {"losses": losses[None], **FP32.encode(total[None], "sums.")}
    return Message(UPDATE, iteration, fields, tensors=tensors)
