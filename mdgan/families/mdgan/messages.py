"""The messages of MD-GAN: generated batches go out, feedback comes back, discriminators move."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.host_keys import NotMasked
from mdgan.families.mdgan.algorithm import Assignment, Assignments
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.labels import Samples
from mdgan.messages import Message

BATCHES = "BATCHES"
FEEDBACK = "FEEDBACK"
SWAP = "SWAP"
SWAPPED = "SWAPPED"
DISCRIMINATORS = "DISCRIMINATORS"
COPIED = "discriminator.model."
"""The prefix of the names in a copy for a newcomer: weights and buffers. Moments are not copied:
they would show what their worker has just learnt."""
_LABELS = "labels"
OUTPUTS = "outputs"
"""D_n(X^(g)), [b]: workers send it beside their feedback, for the rules that need it."""


def feedback_form(settings: MDGANSettings, sample_shape: Sequence[int]) -> AnswerForm:
    """The form in which hosts send feedback on samples of a shape, (C, H, W)."""
    rule, suspects = settings.aggregation, settings.suspects
    batch_size = settings.training.batch_size
    return AnswerForm(
        FEEDBACK,
        (batch_size, *sample_shape),
        Codec.of(settings.wire.feedback),
        # Other rules, a step for each answer and scores of workers need every answer by itself.
        sums=rule.name == "mean" and not settings.by_arrival and not suspects.shut_out_free_riders,
        beside={OUTPUTS: (batch_size,)} if rule.needs_verdicts else {},
        most_usual=suspects.longest_answer,
    )


def image_codec(settings: MDGANSettings) -> Codec:
    """The codec of generated samples: `--wire`, or int8 where every worker gets all batches."""
    return Codec("int8") if settings.batches.trains_on_all else Codec.of(settings.wire.images)


def batches(
    iteration: int,
    generated: Samples,
    assignment: Mapping[int, tuple[int, int]],
    *,
    swap_follows: bool,
    last: bool,
    codec: Codec = FP32,
    encoded: dict[tuple[int, ...], dict[str, Tensor]] | None = None,
    more: Mapping[str, Any] | None = None,
    train_on_all: bool = False,
) -> Message:
    """Server → host: the batches that the host's workers judge and train on, each batch once.

    Args:
        generated: X, [m, b, C, H, W], of which workers judge κ; with y, int64 [m, b], if models
            are conditional.
        swap_follows: whether a SWAP comes before the next BATCHES.
        train_on_all: every worker trains on all batches, and the host gets all of them.
        encoded: from numbers of batches to these, encoded: a cache for hosts that get the same.
    """
    used_batches = {index for pair in assignment.values() for index in pair}
    used = tuple(range(len(generated.images)) if train_on_all else sorted(used_batches))
    position = {index: place for place, index in enumerate(used)}
    encoded = {} if encoded is None else encoded
    if used not in encoded:
        chosen = generated[list(used)]
        labels = {} if chosen.labels is None else {_LABELS: chosen.labels}
        encoded[used] = {**codec.encode(chosen.images, "batches."), **labels}
    fields = {
        "judge": {str(n): position[judge] for n, (judge, _) in assignment.items()},
        "train": {str(n): position[train] for n, (_, train) in assignment.items()},
        "swap_follows": swap_follows,
        "last": last,
    }
    return Message(BATCHES, iteration, {**fields, **(more or {})}, tensors=encoded[used])


def read_batches(
    message: Message, codec: Codec, batch_shape: tuple[int, ...], num_classes: int | None = None
) -> tuple[Samples, dict[int, Assignment]]:
    """Reads the batches of a BATCHES message, with labels if there are K classes.

    Returns:
        The batches, [n, b, C, H, W]; by worker, the places in them of its two.

    Raises:
        ValueError, KeyError: no codec or honest server writes such batches; the message lacks a
            batch of a worker; or labels are missing or wrong.
    """
    judge, train = message.fields["judge"], message.fields["train"]
    images = codec.decode(message.tensors, batch_shape, "batches.")
    assignment = {int(worker): Assignment(place, train[worker]) for worker, place in judge.items()}
    places = [place for pair in assignment.values() for place in pair]
    if not all(type(place) is int and 0 <= place < len(images) for place in places):
        raise ValueError(f"a batch that is none of the {len(images)}")
    if images.dtype != torch.float32:  # the codec also writes feedback
        raise ValueError(f"batches of {images.dtype}")
    if num_classes is None:
        return Samples(images), assignment
    labels = message.tensors[_LABELS]
    if labels.dtype != torch.int64 or labels.shape != images.shape[:2]:
        shape = list(labels.shape)
        raise ValueError(f"labels are {labels.dtype} {shape}, not int64 of each sample")
    if labels.numel() and not (labels.min() >= 0 and labels.max() < num_classes):
        raise ValueError(f"a label is not in 0-{num_classes - 1}")
    return Samples(images, labels), assignment


def asked_by_sum(
    generated: Samples,
    assignment: Assignments,
    groups: Mapping[int, int],
    *,
    train_on_all: bool = False,
) -> dict[int, bytes]:
    """By masked sum, SHA-256 of what its workers judge and train on: X^(g), X^(d), their labels.

    Hosts compare it. A server that gave one worker other batches could soon make it the only one
    whose feedback is not 0: the sum would be its answer.

    Raises:
        NotMasked: two workers of one sum are asked about different batches.
    """
    about: dict[int, bytes] = {}
    for worker, group in groups.items():
        judge, train = assignment[worker]
        digest = sha256()
        for samples in (generated[judge], generated if train_on_all else generated[train]):
            for tensor in (samples.images, samples.labels):
                digest.update(b"" if tensor is None else tensor.numpy().tobytes())
        if about.setdefault(group, digest.digest()) != digest.digest():
            raise NotMasked("it asks workers of one sum about different batches")
    return about


def swap(
    iteration: int,
    host: int,
    moves: Mapping[int, int],
    host_of: Mapping[int, int],
    addresses: Mapping[int, str | None],
    tickets: Mapping[tuple[int, int], str],
    *,
    means: bool = False,
    agree: bool = True,
) -> Message:
    """Server → host: the moves, giver → taker, that concern one of its workers, with their hosts.

    `addresses` say where every host hands out discriminators; None where no host needs to know.
    `tickets` go by giving and taking host; the host gets those that name it (see `Tickets`). With
    `means` a taker that also gives goes on with the mean of both discriminators. If honest
    discriminators do not `agree` on what is real, takers do not judge a new one by that.
    """
    rows = [[giver, host_of[giver], to, host_of[to]] for giver, to in sorted(moves.items())]
    pairs = [(giver, taker) for _, giver, _, taker in rows if giver != taker]
    fields = {
        "moves": rows,
        "means": means,
        "agree": agree,
        "addresses": {str(giver): addresses.get(giver) for _, giver, _, _ in rows},
        "gives": {str(taker): tickets[host, taker] for giver, taker in pairs if giver == host},
        "takes": {str(giver): tickets[giver, host] for giver, taker in pairs if taker == host},
    }
    return Message(SWAP, iteration, fields)


def check_moves(order: Message) -> None:
    """Raises ValueError if a SWAP has a worker give or get more than one discriminator."""
    rows: list[list[int]] = msgspec.convert(order.fields["moves"], list[list[int]])
    for workers in ([row[place] for row in rows] for place in (0, 2)):
        if len(set(workers)) < len(rows):
            raise ValueError(f"a worker gives or gets twice: {workers}")


def swapped(
    iteration: int,
    given: Mapping[int, str],
    taken: Mapping[int, str],
    refused: Iterable[int] = (),
    *,
    slow_givers: Iterable[int] = (),
) -> Message:
    """Host → server: SHA-256 of the discriminators that its workers gave and took, by worker.

    `taken` lacks workers whose partner was lost, and those that `refused` what arrived and keep
    their present discriminator. `slow_givers` are hosts that kept this host waiting.
    """
    fields = {
        "given": {str(worker): digest for worker, digest in given.items()},
        "taken": {str(worker): digest for worker, digest in taken.items()},
        "refused": sorted(refused),
        "slow": sorted(slow_givers),
    }
    return Message(SWAPPED, iteration, fields)
