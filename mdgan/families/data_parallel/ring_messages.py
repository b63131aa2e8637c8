"""The messages of a ring: hosts and the server add gradients up among themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, pack_answers
from mdgan.engine.message_sizes import MessageSizes, small_bytes
from mdgan.families.data_parallel.messages import KINDS, TRAIN
from mdgan.families.data_parallel.replica import Reduction
from mdgan.messages import Message
from mdgan.transport.collective import most_place_bytes

RING, PLACES, SUM, MEMBER, BEHIND = "RING", "PLACES", "SUM", "MEMBER", "BEHIND"
LARGEST = "largest"
NORMS = {reduction: kind.replace("GRADIENT", "NORM") for kind, reduction in KINDS.items()}
"""The kinds of answer that tell how long gradients are."""

DONE = AnswerForm("DONE", (1,), sums=False)
"""A host has done what it was asked for; it asks nothing of any worker."""


def norm_form(reduction: Reduction) -> AnswerForm:
    """How hosts tell of the gradients that they would add up."""
    return AnswerForm(NORMS[reduction], (1,), sums=False, beside={LARGEST: (1,)})


def norms(
    iteration: int,
    reduction: Reduction,
    gradients: Mapping[int, Tensor],
    losses: Mapping[int, Tensor],
) -> Message:
    """Host → server: how long its workers' gradients are, and the largest absolute value in each.

    That is 0 where it is not finite, since the norm says it.
    """
    lengths = {n: torch.linalg.vector_norm(vector).view(1) for n, vector in gradients.items()}
    largest = {n: v.abs().max().nan_to_num(0, 0, 0).view(1) for n, v in gradients.items()}
    return pack_answers(iteration, lengths, losses, {}, norm_form(reduction), {LARGEST: largest})


def ring(iteration: int, rank: int, size: int, num_threads: int) -> Message:
    """Server → host: be the member of a rank; the server is 0.

    Hosts step with as many threads as the server: sums over a tensor, as in clipping, depend on it.
    """
    return Message(RING, iteration, {"rank": rank, "size": size, "threads": num_threads})


def places(iteration: int, by_rank: Sequence[bytes]) -> Message:
    """Server → host: where the members listen, by rank; connect with them."""
    return Message(PLACES, iteration, {"places": [place.hex() for place in by_rank]})


def add_up(iteration: int, weights: Mapping[int, float], *, wants_digest: bool) -> Message:
    """Server → host: add up the gradients that you have found, and step with the mean.

    `weights` are of all hosts' workers. The host answers only with the digest, if it is wanted.
    """
    by_worker = {str(worker): weight for worker, weight in weights.items()}
    return Message(SUM, iteration, {"weights": by_worker, "digest": wants_digest})


def member(iteration: int, **report: Any) -> Message:
    """Host → server, before DONE: its `place`, whether `connected`, or the replica's `digest`."""
    return Message(MEMBER, iteration, report)


def behind(iteration: int) -> Message:
    """Host → server: the last sum did not come here; ask again, and send the replica."""
    return Message(BEHIND, iteration)


def done(iteration: int) -> Message:
    """Host → server: it is ready for the next question."""
    return Message(DONE.kind, iteration, {"workers": []})


def with_ring(sizes: MessageSizes, replica_bytes: int, num_workers: int) -> MessageSizes:
    """The message sizes with a ring of N workers at the start; twice as many may have come."""
    most = 2 * num_workers + 2
    a_place = 2 * most_place_bytes(most) + 8

    def from_host(count: int) -> dict[str, int]:
        kinds = dict.fromkeys((*NORMS.values(), DONE.kind, BEHIND), small_bytes(count))
        return {**sizes.from_host(count), **kinds, MEMBER: small_bytes(0) + a_place}

    def from_server(count: int) -> dict[str, int]:
        question = sizes.from_server(count)
        return {
            **question,
            TRAIN: question[TRAIN] + replica_bytes,
            RING: small_bytes(count),
            PLACES: small_bytes(0) + most * a_place,
            SUM: small_bytes(most),
        }

    return replace(sizes, from_host=from_host, from_server=from_server)
