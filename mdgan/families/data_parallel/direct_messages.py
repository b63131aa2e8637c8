"""The messages of hosts that add up gradients among themselves: who joins, adds up and steps."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, pack_answers
from mdgan.engine.message_sizes import MessageSizes, small_bytes
from mdgan.families.data_parallel.collective import most_place_bytes
from mdgan.families.data_parallel.direct_sum import Counted
from mdgan.families.data_parallel.messages import KINDS, TRAIN
from mdgan.families.data_parallel.replica import Reduction
from mdgan.messages import Message

JOIN, CONNECT, ADD_UP, STEP, MEMBER = "JOIN", "CONNECT", "ADDUP", "STEP", "MEMBER"
NORMS = {
    reduction: AnswerForm(kind.replace("GRADIENT", "NORM"), (1,), sums=False)
    for kind, reduction in KINDS.items()
}
"""How hosts tell how long the gradients are that they have found."""
DONE = AnswerForm("DONE", (1,), sums=False, most_norm=1.0)
"""How hosts tell whether they could do something: 1 or 0 for each worker."""


def arithmetic(device: torch.device) -> str:
    """What decides how a step is rounded: processes of the same take the same steps."""
    chip = torch.backends.cpu.get_cpu_capability()
    if device.type == "cuda":
        chip = torch.cuda.get_device_name(device)
    return f"torch {torch.__version__} on {platform.machine()}, {chip}"


def norms(
    iteration: int, reduction: Reduction, found: Mapping[int, Tensor], losses: Mapping[int, Tensor]
) -> Message:
    """Host → server: how long the gradients of its workers are."""
    lengths = {n: torch.linalg.vector_norm(vector).view(1) for n, vector in found.items()}
    return pack_answers(iteration, lengths, losses, {}, NORMS[reduction])


def join(iteration: int, rank: int, size: int) -> Message:
    """Server → host: be one of so many members; the server's rank is 0."""
    return Message(JOIN, iteration, {"rank": rank, "size": size})


def member(iteration: int, place: bytes, steps: str) -> Message:
    """Host → server, before DONE: where it listens, and its `arithmetic`."""
    return Message(MEMBER, iteration, {"place": place.hex(), "steps": steps})


def connect(iteration: int, places: Sequence[bytes]) -> Message:
    """Server → host: where the members listen, by rank; connect with them."""
    return Message(CONNECT, iteration, {"places": [place.hex() for place in places]})


def add_up(iteration: int, counted: Counted) -> Message:
    """Server → host: add up the gradients that members have found."""
    fields = {
        "members": list(map(list, counted.members)),
        "weights": {str(worker): weight for worker, weight in counted.weights.items()},
    }
    return Message(ADD_UP, iteration, fields)


def read_add_up(message: Message) -> Counted:
    """Reads what `add_up` made."""
    fields = message.fields
    return Counted(
        [[int(n) for n in workers] for workers in fields["members"]],
        {int(n): float(weight) for n, weight in fields["weights"].items()},
    )


def step(iteration: int, rates: Mapping[str, float], num_threads: int) -> Message:
    """Server → host: all have the mean; step with it.

    Args:
        rates: by what the learning rate of each network is multiplied.
        num_threads: with which the server steps; norms of whole tensors depend on it.
    """
    return Message(STEP, iteration, {"rates": dict(rates), "threads": num_threads})


def done(iteration: int, workers: Sequence[int], *, well: bool) -> Message:
    """Host → server: whether it could do what it was asked."""
    answers = {n: torch.full((1,), float(well)) for n in workers}
    return pack_answers(iteration, answers, dict.fromkeys(workers, torch.zeros(2)), {}, DONE)


def with_direct(sizes: MessageSizes, moments_bytes: int, num_workers: int) -> MessageSizes:
    """The message sizes of a run whose hosts add up among themselves.

    Args:
        sizes: those of a star.
        moments_bytes: of all that optimizers keep.
        num_workers: N at the start; twice as many may come.
    """
    most = 2 * num_workers + 2
    a_place = 2 * most_place_bytes(most) + 8

    def from_host(count: int) -> dict[str, int]:
        forms = [*NORMS.values(), DONE]
        small = {form.kind: count * 64 + small_bytes(count) for form in forms}
        return {**sizes.from_host(count), **small, MEMBER: small_bytes(0) + a_place}

    def from_server(count: int) -> dict[str, int]:
        question = sizes.from_server(count)
        return {
            **question,
            TRAIN: question[TRAIN] + moments_bytes,
            JOIN: small_bytes(0),
            CONNECT: small_bytes(0) + most * a_place,
            ADD_UP: small_bytes(most),
            STEP: small_bytes(0),
        }

    return replace(sizes, from_host=from_host, from_server=from_server)
