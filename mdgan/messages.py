"""What travels between the server and the hosts, and between hosts.

Every message has a kind, the iteration it belongs to, a few JSON fields, and named tensors. The
functions below are the only places where messages are made; each says what its message holds.
Images are float32 [.., C, H, W] in [−1, 1].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor


class Kind(IntEnum):
    """The kinds of message; the numbers are part of the wire format."""

    BATCHES = 1
    FEEDBACK = 2
    SWAP = 3
    DISCRIMINATORS = 4
    SWAPPED = 5
    STOP = 6
    BYE = 7


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        kind: what it is.
        iteration: the global learning iteration it belongs to.
        fields: JSON values.
        tensors: tensors by name.
    """

    kind: Kind
    iteration: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def batches(
    iteration: int,
    generated: Tensor,
    assignment: Mapping[int, tuple[int, int]],
    *,
    swap_follows: bool,
    last: bool,
) -> Message:
    """Server → host: what the host's workers judge and train on.

    Each batch is sent once, however many of the host's workers use it.

    Args:
        iteration: i.
        generated: X, [κ, b, C, H, W].
        assignment: for every worker of the host, the batch to judge and the one to train on.
        swap_follows: whether a SWAP comes before the next BATCHES.
        last: whether this is the last iteration.

    Returns:
        fields `judge` and `train` (worker → position in the tensor), `swap_follows`, `last`;
        tensor `batches`, [number of batches used here, b, C, H, W].
    """
    used = sorted({index for pair in assignment.values() for index in pair})
    position = {index: place for place, index in enumerate(used)}
    return Message(
        Kind.BATCHES,
        iteration,
        fields={
            "judge": {str(n): position[judge] for n, (judge, _) in assignment.items()},
            "train": {str(n): position[train] for n, (_, train) in assignment.items()},
            "swap_follows": swap_follows,
            "last": last,
        },
        tensors={"batches": generated[used]},
    )


def feedback(
    iteration: int,
    feedbacks: Mapping[int, Tensor],
    discriminator_losses: Sequence[Tensor],
    generator_losses: Sequence[Tensor],
) -> Message:
    """Host → server: F_n of all the host's workers.

    Returns:
        field `workers`; tensors `feedback` [W, b, C, H, W] and `losses` float32 [W, 2]
        (J_disc, J_gen), in the order of `workers`.
    """
    losses = torch.stack(
        [torch.stack(list(discriminator_losses)), torch.stack(list(generator_losses))]
    )
    return Message(
        Kind.FEEDBACK,
        iteration,
        fields={"workers": list(feedbacks)},
        tensors={"feedback": torch.stack(list(feedbacks.values())), "losses": losses.T},
    )


def swap(iteration: int, moves: Mapping[int, int], host_of: Mapping[int, int]) -> Message:
    """Server → host: the moves that concern one of the host's workers.

    Returns:
        field `moves`: [giver, giver's host, taker, taker's host] each, in increasing giver.
    """
    rows = [
        [giver, host_of[giver], taker, host_of[taker]] for giver, taker in sorted(moves.items())
    ]
    return Message(Kind.SWAP, iteration, fields={"moves": rows})


def discriminators(iteration: int, states: Mapping[int, Mapping[str, Tensor]]) -> Message:
    """Host → host: the discriminators that move from one host to another in one swap.

    Args:
        iteration: i.
        states: for every taker, `Discriminator.state` of its giver.

    Returns:
        tensors named `<taker>/<name in the state>`.
    """
    tensors = {
        f"{taker}/{name}": tensor
        for taker, state in states.items()
        for name, tensor in state.items()
    }
    return Message(Kind.DISCRIMINATORS, iteration, tensors=tensors)


def swapped(iteration: int, given: Mapping[int, str], taken: Mapping[int, str]) -> Message:
    """Host → server: what the host's workers gave away and what they hold now.

    Returns:
        fields `given` and `taken`: worker → SHA-256 of the discriminator's whole state, before and
        after. A worker whose partner was lost is not in `taken`.
    """
    return Message(
        Kind.SWAPPED,
        iteration,
        fields={
            "given": {str(worker): digest for worker, digest in given.items()},
            "taken": {str(worker): digest for worker, digest in taken.items()},
        },
    )


def stop(iteration: int, reason: str) -> Message:
    """Server → host: training is over.

    Returns:
        field `reason`: empty if every iteration was done.
    """
    return Message(Kind.STOP, iteration, fields={"reason": reason})


def bye() -> Message:
    """Either way, the last message on a link."""
    return Message(Kind.BYE, 0)
