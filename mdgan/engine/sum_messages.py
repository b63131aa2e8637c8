"""What hosts and the server tell each other of masked sums; see `masked_answers.py`."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.secret_sharing import SECRET_BYTES, Limbs
from mdgan.messages import Kind, Message

LOSS_STEPS = 2.0**20
"""Losses are added up in steps of 2⁻²⁰: they are only shown."""
NUM_LOSSES = 2
SEAL_BYTES = 28
"""What a sealed share has beside the share."""
CODE_BYTES = 32

_Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Codes = dict[int, Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]]
"""By host, a code in hexadecimal."""


class SumQuestion(msgspec.Struct, frozen=True):
    """Which hosts take part in the sums of one iteration.

    Attributes:
        number: of the question; each has a larger one than those before.
        parties: by sum, the hosts.
    """

    number: _Number
    parties: dict[_Small, list[int]]

    def fields(self) -> dict[str, Any]:
        """As JSON values, for a question."""
        given: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return given


class Survivors(msgspec.Struct, frozen=True):
    """Which hosts' answers to a question have come.

    Attributes:
        number: of the question.
        survivors: by sum, the hosts.
        codes: by sum and host, its code for the host that is asked; empty where all have survived.
    """

    number: _Number
    survivors: dict[_Small, list[int]]
    codes: dict[_Small, Codes] = {}


class MaskedSum(NamedTuple):
    """What a host sends for one sum.

    Attributes:
        total: int64 [values of an answer, and J_disc and J_gen], masked.
        shares: uint8 [n - 1, …]: for each other host, in the order of the question, its shares.
    """

    total: Tensor
    shares: Tensor


def read_masked(
    message: Message, form: AnswerForm, parties: Mapping[int, Sequence[int]]
) -> dict[int, MaskedSum]:
    """Reads what `MaskedAnswers.pack` wrote; a hostile host may have sent anything else.

    Args:
        message: from a host.
        form: how answers travel.
        parties: by sum, the hosts that were asked.

    Raises:
        ValueError: it is malformed, or the host abstains.
    """
    if message.fields.get("abstains") is not False:
        raise ValueError("NaN or Inf, or a value too large to be added up")
    length, found = prod(form.shape) + NUM_LOSSES, {}
    for group, hosts in parties.items():
        if (total := message.tensors.get(f"masked.{group}")) is None:
            continue
        _check(total, torch.int64, (length,))
        shares = message.tensors.get(f"shares.{group}", torch.empty(0))
        _check(shares, torch.uint8, (len(hosts) - 1, len(hosts) * SECRET_BYTES + SEAL_BYTES))
        found[group] = MaskedSum(total, shares)
    if len(found) * 2 != len(message.tensors):
        raise ValueError("tensors that are no masked sums")
    return found


def read_codes(message: Message, survivors: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
    """Reads what `MaskedAnswers.confirm` wrote: by sum, uint8 [|survivors| - 1, CODE_BYTES].

    Args:
        message: from a host.
        survivors: by sum, those that it was told.

    Raises:
        ValueError: it is malformed.
    """
    found = {}
    for group, hosts in survivors.items():
        if (given := message.tensors.get(f"codes.{group}")) is not None:
            _check(given, torch.uint8, (len(hosts) - 1, CODE_BYTES))
            found[group] = given
    return found


def read_revealed(message: Message, shapes: Mapping[int, tuple[int, int]]) -> dict[int, Limbs]:
    """Reads what `MaskedAnswers.reveal` wrote.

    Args:
        message: from a host.
        shapes: by sum, how many hosts have survived, and how many secrets of each are shared.

    Returns:
        By sum, [survivors, secrets, LIMBS].

    Raises:
        ValueError: it is malformed.
    """
    found = {}
    for group, shape in shapes.items():
        if (given := message.tensors.get(f"revealed.{group}")) is not None:
            _check(given, torch.uint8, (*shape, SECRET_BYTES))
            found[group] = given.numpy().view("<u2").astype(np.uint16)
    return found


def _check(given: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if given.dtype != dtype or given.shape != shape:
        raise ValueError(f"{given.dtype} {list(given.shape)}, not {dtype} {list(shape)}")


def order_for(
    kind: Kind, iteration: int, asked: Survivors, shares: Mapping[int, Tensor]
) -> Message:
    """Server → host: which answers have come; see `Survivors` and `MaskedAnswers.reveal`."""
    fields = {"sums": msgspec.to_builtins(asked, str_keys=True)}
    return Message(kind, iteration, fields, {f"shares.{g}": t for g, t in shares.items()})
