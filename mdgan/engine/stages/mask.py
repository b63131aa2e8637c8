"""What hosts and the server tell each other of masked sums; `mask_host.py` says what it is for."""

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

LOSS_STEPS = 2.0**20  # losses are added up in steps of 2⁻²⁰: they are only shown
NUM_LOSSES = 2
SEAL_BYTES = 28  # what a sealed share has beside the share
CODE_BYTES = 32
_MOST_LOSS = 2.0**30

_Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class SumQuestion(msgspec.Struct, frozen=True):
    """Which hosts, by sum, take part in a question's; each has a larger number than the last."""

    number: _Number
    parties: dict[_Small, list[int]]


class Survivors(msgspec.Struct, frozen=True):
    """Of which hosts, by sum, answers to a question have come."""

    number: _Number
    survivors: dict[_Small, list[int]]


class MaskedSum(NamedTuple):
    """What a host sends for one sum."""

    total: Tensor  # int64 [values of an answer, and J_disc and J_gen], masked
    # uint8 [n - 1, …]: for each other host, in the order of the question, its shares.
    shares: Tensor


class Refusal(frozenset[int]):
    """A host has no part in sums with these others, of which it was told keys that are none."""


_Order = TypeVar("_Order", SumQuestion, Survivors)


def as_fields(asked: SumQuestion | Survivors) -> dict[str, Any]:
    """The field of a message that holds it, as JSON values."""
    return {"sums": msgspec.to_builtins(asked, str_keys=True)}


def added_up(leaving: Leaving, group: int, arithmetic: FixedPoint) -> Tensor | None:
    """One sum's share of a host in steps, int64; None if it cannot be added up."""
    own = {n: leaving.answers[n] for n, its in leaving.groups.items() if its == group}
    losses = torch.stack([leaving.losses[n] for n in own]).double().sum(0)
    usable = all(float(answer.abs().max()) < arithmetic.largest for answer in own.values())
    if not usable or not float(losses.abs().max()) < _MOST_LOSS:  # NaN is not below anything
        return None
    total = arithmetic.in_steps(own, leaving.weights).cpu().reshape(-1)
    return torch.cat([total, (losses * LOSS_STEPS).round().long().cpu()])


def read_tensors(
    message: Message, name: str, shapes: Mapping[int, tuple[int, ...]], dtype: torch.dtype
) -> dict[int, Tensor]:
    """Reads those tensors `<name>.<sum>` that a host, perhaps a hostile one, has sent.

    Raises:
        ValueError: one is of another shape or type.
    """
    tensors = {}
    for group, shape in shapes.items():
        if (given := message.tensors.get(f"{name}.{group}")) is not None:
            if given.dtype != dtype or given.shape != shape:
                raise ValueError(f"{given.dtype} {list(given.shape)}, not {dtype} {list(shape)}")
            tensors[group] = given
    return tensors


def read_masked(
    message: Message, form: AnswerForm, parties: Mapping[int, Sequence[int]]
) -> dict[int, MaskedSum] | Refusal:
    """Reads what `HostMask.pack` wrote to the hosts that were asked for each sum.

    Raises:
        ValueError: it is malformed, or the host abstains.
    """
    others = {host for own in parties.values() for host in own}
    given = message.fields.get("refuses")
    if isinstance(given, list) and (named := {n for n in given if type(n) is int} & others):
        return Refusal(named)
    if message.fields.get("abstains") is not False:
        raise ValueError("NaN or Inf, or a value too large to be added up")
    length, counts = prod(form.shape) + NUM_LOSSES, {g: len(own) for g, own in parties.items()}
    totals = read_tensors(message, "masked", dict.fromkeys(counts, (length,)), dtype=torch.int64)
    sizes = {group: (n - 1, n * SECRET_BYTES + SEAL_BYTES) for group, n in counts.items()}
    shares = read_tensors(message, "shares", sizes, dtype=torch.uint8)
    if totals.keys() != shares.keys() or 2 * len(totals) != len(message.tensors):
        raise ValueError("tensors that are no masked sums")
    return {group: MaskedSum(total, shares[group]) for group, total in totals.items()}


def read_sums(message: Message, kind: type[_Order], otherwise: str) -> _Order:
    """What the server says of sums, in the field `sums`.

    Raises:
        NotMasked: it is malformed; `otherwise` says so for people.
    """
    try:
        return msgspec.convert(message.fields.get("sums"), kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise NotMasked(f"{otherwise} ({error})") from error


def read_rows(order: Message, name: str, group: int, *shape: int) -> Tensor | None:
    """What the server passes on of a sum, uint8; None if it does not, or malformed."""
    try:
        return read_tensors(order, name, {group: shape}, dtype=torch.uint8).get(group)
    except ValueError:
        return None
