"""The messages of a round in which clients are placed: lists go out, one sum comes back a host."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.federated.messages import ROUND, UPDATE
from mdgan.families.federated.settings import MOST_SLOTS, FederatedSettings
from mdgan.families.federated.training_load import Load
from mdgan.gan.codecs import FP32
from mdgan.gan.model_state import under
from mdgan.messages import Message

TRAINED = "TRAINED"
MODELS = "MODELS"

OF_A_CLIENT_BYTES = 256
"""What a client adds to the JSON of a message."""

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Kind = Annotated[str, msgspec.Meta(max_length=120, pattern=r"\A[ -~]*\Z")]


_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_Weight = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Lists = Annotated[
    list[list[tuple[_Count, _Count, _Count, _Weight]]], msgspec.Meta(max_length=MOST_SLOTS)
]
_T = TypeVar("_T")


class Task(NamedTuple):
    """What a slot does with one client.

    Attributes:
        client: its number.
        load: how much it trains.
        weight: of its models in the sum.
    """

    client: int
    load: Load
    weight: float


class Offer(msgspec.Struct, frozen=True):
    """The slots that a host offers for the next round.

    Attributes:
        kinds: what each of them is, such as a processor's name; slots of one kind are equally fast.
    """

    kinds: Annotated[list[_Kind], msgspec.Meta(min_length=1, max_length=MOST_SLOTS)]


class Trained(msgspec.Struct, frozen=True):
    """One client has been trained.

    Attributes:
        client: its number.
        slot: in which of the host's slots.
        begin: seconds from the beginning of the host's round.
        seconds: how long it took.
        losses: the means of J_disc and J_gen.
        usable: whether its models are finite; if not, they are in no sum, and its losses are 0.
    """

    client: int
    slot: Annotated[int, msgspec.Meta(ge=0, lt=MOST_SLOTS)]
    begin: _Seconds
    seconds: _Seconds
    losses: tuple[float, float]
    usable: bool = True


class Account(msgspec.Struct, frozen=True):
    """What a host tells of its round besides the sum.

    Attributes:
        trained: all its clients.
        offer: for the next round.
    """

    trained: list[Trained]
    offer: Offer


def placed_order(iteration: int, models: Tensor, lists: Sequence[Sequence[Task]]) -> Message:
    """Server → host: train these models.

    Args:
        iteration: i after the round.
        models: float32 `ModelVector.shape`.
        lists: what each of the host's slots does, in order.

    Returns:
        fields `lists`: for each slot [client, iterations, batch size, weight] in order;
        tensor `models`.
    """
    told = [
        [[client, load.iterations, load.batch_size, weight] for client, load, weight in tasks]
        for tasks in lists
    ]
    return Message(ROUND, iteration, {"lists": told}, {"models": models})


def read_placed_order(
    message: Message, shape: tuple[int, ...], num_clients: int
) -> tuple[Tensor, list[list[Task]]]:
    """Reads what `placed_order` made: the models and the lists.

    Args:
        message: may be anything.
        shape: of the models as one vector.
        num_clients: their numbers are 1 to this.

    Raises:
        ValueError: it is malformed.
    """
    models = message.tensors.get("models", torch.empty(0))
    if models.shape != shape or models.dtype != torch.float32:
        raise ValueError(f"models of shape {list(models.shape)}, {models.dtype}")
    lists = _convert(message.fields.get("lists"), _Lists)
    clients = [client for tasks in lists for client, *_ in tasks]
    if len(set(clients)) < len(clients) or max(clients, default=1) > num_clients:
        raise ValueError(f"each of the clients 1 to {num_clients} may be there once")
    if message.iteration < 1:
        raise ValueError(f"iteration {message.iteration}")
    return models, [[Task(n, Load(i, b), weight) for n, i, b, weight in own] for own in lists]


def trained(iteration: int, account: Account) -> Message:
    """Host → server, before its answer: who was trained, for how long.

    Returns:
        fields as in `Account`.
    """
    fields: dict[str, Any] = msgspec.to_builtins(account)
    return Message(TRAINED, iteration, fields)


def read_trained(message: Message) -> Account:
    """Reads a TRAINED message, which may be anything.

    Raises:
        ValueError: it is malformed.
    """
    return _convert(dict(message.fields), Account)


def read_offer(told: Mapping[str, Any]) -> Offer | None:
    """What a host offered last; None if it makes no sense."""
    try:
        return _convert(told.get("offer"), Offer)
    except ValueError:
        return None


def _convert(given: object, kind: type[_T]) -> _T:
    """Reads JSON values; what is malformed raises a ValueError."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def models_of_client(iteration: int, client: int, models: Tensor) -> Message:
    """Host → server, before TRAINED, if the server must see every client's models.

    Args:
        iteration: i after the round.
        client: its number.
        models: after training, float32 `ModelVector.shape`.

    Returns:
        field `client`; tensor `models`.
    """
    return Message(MODELS, iteration, {"client": client}, {"models": models})


def sum_update(iteration: int, rank: int, total: Tensor, losses: Tensor) -> Message:
    """Host → server: Σ w_k · x_k over all its clients.

    Args:
        iteration: i after the round.
        rank: of the host; the answer counts as its own.
        total: float64 `ModelVector.shape`.
        losses: float32 [2], the means over its clients.

    Returns:
        What `read_answers` takes as the sum of one worker.
    """
    fields = {"workers": [rank], "summed": [[rank]]}
    tensors = {"losses": losses[None], **under("sums.", FP32.encode(total[None]))}
    return Message(UPDATE, iteration, fields, tensors)


def placed_form(shape: tuple[int, ...], settings: FederatedSettings) -> AnswerForm:
    """How a host answers.

    Args:
        shape: of the models as one vector.
        settings: of the run.
    """
    most = settings.privacy.update_clip if settings.privacy.hides_clients else None
    return AnswerForm(UPDATE, shape, most_norm=most)


def mean_losses(accounts: Sequence[Trained]) -> Tensor:
    """The means of J_disc and J_gen over clients, float32 [2]."""
    return torch.tensor([each.losses for each in accounts]).mean(0)
