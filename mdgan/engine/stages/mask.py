"""The messages of masked sums, between hosts and server; `mask_host.py` explains the protocol."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.host_keys import NotMasked
from mdgan.engine.stages.contract import Leaving
from mdgan.gan.exact_sum import FixedPoint
from mdgan.messages import Message
from mdgan.privacy.masks import SECRET_BYTES

LOSS_STEPS = 2.0**20  # hosts add up losses in steps of 2⁻²⁰: these are only shown
NUM_LOSSES = 2
SEAL_BYTES = 28  # the bytes of a seal beside the sealed shares
CODE_BYTES = 32
_MOST_LOSS = 2.0**30

_Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class SumQuestion(msgspec.Struct, frozen=True):
    """Server → host: the hosts of each sum of a question; each question has a larger number."""

    number: _Number
    parties: dict[_Small, list[int]]


class Survivors(msgspec.Struct, frozen=True):
    """Server → host: by sum, the hosts whose masked answers to a question have arrived."""

    number: _Number
    survivors: dict[_Small, list[int]]


class MaskedSum(NamedTuple):
    """The addend of a host to one sum, and shares of its masks."""

    total: Tensor  # int64 [values of an answer, and J_disc and J_gen], masked
    # uint8 [n - 1, …]: the sealed shares for each other host, in the order of the question.
    shares: Tensor


class Refusal(frozenset[int]):
    """The answer of a host that refuses sums with these hosts, since their keys are invalid."""


_Order = TypeVar("_Order", SumQuestion, Survivors)


def as_fields(asked: SumQuestion | Survivors) -> dict[str, Any]:
    """The field `sums` of a message, as JSON values."""
    return {"sums": msgspec.to_builtins(asked, str_keys=True)}


def added_up(leaving: Leaving, group: int, arithmetic: FixedPoint) -> Tensor | None:
    """A host's addend to one sum before masks, in steps, int64; None if an answer is unusable."""
    answers = {n: leaving.answers[n] for n, its in leaving.groups.items() if its == group}
    losses = torch.stack([leaving.losses[n] for n in answers]).double().sum(0)
    usable = all(float(answer.abs().max()) < arithmetic.largest for answer in answers.values())
    if not usable or not float(losses.abs().max()) < _MOST_LOSS:  # NaN is not below anything
        return None
    total = arithmetic.in_steps(answers, leaving.weights).cpu().reshape(-1)
    return torch.cat([total, (losses * LOSS_STEPS).round().long().cpu()])


def read_tensors(
    message: Message, name: str, shapes: Mapping[int, tuple[int, ...]], dtype: torch.dtype
) -> dict[int, Tensor]:
    """Reads the tensors `<name>.<sum>` in a message of a host, perhaps a hostile one.

    Raises:
        ValueError: a tensor has another shape or type.
    """
    tensors = {}
    for group, shape in shapes.items():
        if (tensor := message.tensors.get(f"{name}.{group}")) is not None:
            if tensor.dtype != dtype or tensor.shape != shape:
                raise ValueError(f"{tensor.dtype} {list(tensor.shape)}, not {dtype} {list(shape)}")
            tensors[group] = tensor
    return tensors


def read_masked(
    message: Message, form: AnswerForm, parties: Mapping[int, Sequence[int]]
) -> dict[int, MaskedSum] | Refusal:
    """Reads a message of `HostMask.pack`; `parties` are the hosts asked for each sum.

    Raises:
        ValueError: it is malformed, or the host abstains.
    """
    hosts = {host for of_sum in parties.values() for host in of_sum}
    refuses = message.fields.get("refuses")
    if isinstance(refuses, list) and (named := {n for n in refuses if type(n) is int} & hosts):
        return Refusal(named)
    if message.fields.get("abstains") is not False:
        raise ValueError("NaN or Inf, or a value too large to be added up")
    length, counts = prod(form.shape) + NUM_LOSSES, {g: len(its) for g, its in parties.items()}
    totals = read_tensors(message, "masked", dict.fromkeys(counts, (length,)), dtype=torch.int64)
    sizes = {group: (n - 1, n * SECRET_BYTES + SEAL_BYTES) for group, n in counts.items()}
    shares = read_tensors(message, "shares", sizes, dtype=torch.uint8)
    if totals.keys() != shares.keys() or 2 * len(totals) != len(message.tensors):
        raise ValueError("tensors that are no masked sums")
    return {group: MaskedSum(total, shares[group]) for group, total in totals.items()}


def read_sums(message: Message, kind: type[_Order], otherwise: str) -> _Order:
    """Reads the field `sums` of a message of the server.

    Raises:
        NotMasked: it is malformed; the message begins with `otherwise`.
    """
    try:
        return msgspec.convert(message.fields.get("sums"), kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise NotMasked(f"{otherwise} ({error})") from error


def read_rows(order: Message, name: str, group: int, *shape: int) -> Tensor | None:
    """The tensor `<name>.<sum>` that the server passes on, uint8; None if missing or malformed."""
    try:
        return read_tensors(order, name, {group: shape}, dtype=torch.uint8).get(group)
    except ValueError:
        return None
