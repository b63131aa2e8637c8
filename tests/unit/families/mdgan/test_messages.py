"""Batches and feedback as messages: written on one side, read on the other."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.stages.contract import pack_answers, read_answers
from mdgan.families.mdgan.algorithm import Assignment, assign, mean_feedback
from mdgan.families.mdgan.messages import (
    BATCHES,
    FEEDBACK,
    OUTPUTS,
    batches,
    feedback_form,
    image_codec,
    read_batches,
)
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.exact_sum import PartialSum
from mdgan.gan.labels import Samples
from mdgan.messages import Message
from mdgan.transport.frames import encode
from tests.claims.registry import claim
from tests.marks import examples

KAPPA, BATCH, SHAPE = 5, 2, (1, 2, 2)
FORM = AnswerForm(FEEDBACK, (BATCH, *SHAPE))
CIFAR = (3, 32, 32)
TABLE_IV_BATCHES_MIB = 0.23  # Hardy et al., Table IV: C→W at a worker, b = 10
quick = settings(deadline=None, max_examples=examples(24))
indices = st.integers(0, KAPPA - 1)
assignments = st.dictionaries(st.integers(1, 99), st.tuples(indices, indices), min_size=1)


def generated() -> Tensor:
    return torch.arange(KAPPA * BATCH * 4, dtype=torch.float32).view(KAPPA, BATCH, *SHAPE)


def feedback_of(worker: int, shape: tuple[int, ...] = (BATCH, *SHAPE)) -> Tensor:
    return 1e-3 * torch.randn(shape, generator=torch.Generator().manual_seed(worker))


def answer(judged: dict[int, int], form: AnswerForm = FORM) -> Message:
    feedbacks = {worker: feedback_of(worker, form.shape) for worker in judged}
    losses = {worker: torch.tensor([worker + 0.1, worker + 0.2]) for worker in judged}
    outputs = {worker: outputs_of(worker) for worker in judged}
    return pack_answers(9, feedbacks, losses, judged, form, {OUTPUTS: outputs})


def outputs_of(worker: int) -> Tensor:
    return torch.tensor([worker - 0.5, -worker])


def form_of(rule: str) -> AnswerForm:
    values = {"world_size": 9, "aggregation": rule, "batch_size": BATCH}
    return feedback_form(MDGANSettings.read(values), SHAPE)


@pytest.mark.parametrize("labels", [None, torch.arange(KAPPA * BATCH).view(KAPPA, BATCH) % 3])
@quick
@given(assignments)
def test_each_batch_that_is_used_is_sent_once_and_found_again(
    labels: Tensor | None, assignment: dict[int, tuple[int, int]]
) -> None:
    whole = Samples(generated(), labels)
    message = batches(3, whole, assignment, swap_follows=True, last=False)
    assert (message.kind, message.iteration) == (BATCHES, 3)
    decoded, places = read_batches(message, FP32, FORM.shape, None if labels is None else 3)
    used = {index for pair in assignment.values() for index in pair}
    assert decoded.images.shape == (len(used), BATCH, *SHAPE)
    assert message.tensors.keys() == {"batches.values"} | (
        {"labels"} if labels is not None else set()
    )
    assert list(places) == list(assignment)
    for n, pair in assignment.items():
        for place, index in zip(places[n], pair, strict=True):
            assert torch.equal(decoded[place].images, generated()[index])
            read, sent = decoded[place].labels, whole[index].labels
            assert (read is None) == (sent is None)
            assert read is None or sent is None or torch.equal(read, sent)


@pytest.mark.parametrize("labels", [None, torch.arange(KAPPA * BATCH).view(KAPPA, BATCH) % 3])
@quick
@given(assignments)
def test_where_all_train_on_all_every_host_gets_all(
    labels: Tensor | None, assignment: dict[int, tuple[int, int]]
) -> None:
    whole, coarse = Samples(generated(), labels), Codec("int8")
    message = batches(
        *(3, whole, assignment), swap_follows=False, last=False, codec=coarse, train_on_all=True
    )
    decoded, places = read_batches(message, coarse, FORM.shape, None if labels is None else 3)
    assert {n: judge for n, (judge, _) in places.items()} == {
        n: judge for n, (judge, _) in assignment.items()
    }
    steps = generated().flatten(2).abs().amax(2) / 127
    assert decoded.images.shape == generated().shape
    assert bool(((decoded.images - generated()).abs().flatten(2).amax(2) <= 0.51 * steps).all())
    assert (decoded.labels is None) == (labels is None)
    if labels is not None and decoded.labels is not None:
        assert torch.equal(decoded.labels, labels)


@pytest.mark.parametrize("field", ["judge", "train"])
@pytest.mark.parametrize("place", [-1, 2, KAPPA])
def test_a_batch_that_is_not_there_is_refused(field: str, place: int) -> None:
    message = batches(3, Samples(generated()), {1: (0, 1)}, swap_follows=False, last=False)
    changed = replace(message, fields={**message.fields, field: {"1": place}})
    with pytest.raises(ValueError, match="none of the 2"):
        read_batches(changed, FP32, FORM.shape)


@quick
@given(
    judged=st.dictionaries(st.integers(1, 40), st.integers(0, 3), min_size=1, max_size=12),
    hosts=st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
@claim("adds-up", "a host with several workers adds theirs up first, exactly")
def test_who_adds_up_what_cannot_change_a_bit(judged: dict[int, int], hosts: list[int]) -> None:
    assignment = {worker: Assignment(batch, batch) for worker, batch in judged.items()}
    feedbacks = {worker: feedback_of(worker) for worker in judged}
    alone = mean_feedback(feedbacks, assignment, 4)

    singles: dict[int, Tensor] = {}
    sums: list[PartialSum] = []
    for host in set(hosts):
        here = {n: j for (n, j), at in zip(judged.items(), hosts, strict=False) if at == host}
        if here:
            read = read_answers(answer(here), FORM)
            singles |= read.singles
            sums += read.sums
    assert torch.equal(mean_feedback(singles, assignment, 4, sums), alone)


@pytest.mark.parametrize("rule", ["mean", "median", "krum:1", "clip:1"])
def test_outputs_take_no_bytes_where_the_rule_has_no_use_for_them(rule: str) -> None:
    form, judged = form_of(rule), {1: 0, 2: 1}
    feedbacks = {worker: feedback_of(worker) for worker in judged}
    losses = {worker: torch.tensor([worker + 0.1, worker + 0.2]) for worker in judged}
    without = encode(pack_answers(9, feedbacks, losses, judged, form))
    assert encode(answer(judged, form)) == without


def test_rules_that_vote_see_every_answer() -> None:
    for rule, sums in (("mean", True), ("median", False), ("krum:1", False), ("f2u", False)):
        form = form_of(rule)
        read = read_answers(answer(dict.fromkeys(range(1, 9), 0), form), form)
        assert (len(read.sums), len(read.singles)) == ((1, 0) if sums else (0, 8))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "fp32"),
        ({"step_samples": 48}, "int8"),
        ({"step_samples": 48, "batch_size": 48}, "fp32"),
        ({"step_samples": 48, "wire": "images=bf16"}, "bf16"),
    ],
)
def test_generated_samples_have_8_bits_where_all_go_everywhere(
    values: dict[str, Any], name: str
) -> None:
    assert (
        image_codec(MDGANSettings.read({"world_size": 4, "batch_size": 10, **values})).name == name
    )


def test_the_form_has_the_codec_and_the_shape_of_the_settings() -> None:
    form = feedback_form(MDGANSettings.read({"wire": "feedback=topk:0.1,images=int8"}), CIFAR)
    assert (form.kind, form.shape, str(form.codec)) == (FEEDBACK, (10, *CIFAR), "topk:0.1")


def test_fp32_takes_the_bytes_of_table_iii_and_iv() -> None:
    b, d = 10, 3 * 32 * 32
    images = torch.zeros(3, b, *CIFAR)
    sent = batches(1, Samples(images), {1: assign([1], 3)[1]}, swap_follows=False, last=False)
    back = answer({1: 0}, AnswerForm(FEEDBACK, (b, *CIFAR)))
    for message, num_values in ((sent, 2 * b * d), (back, b * d)):  # 2bd and bd floats
        assert 4 * num_values < len(encode(message).body) < 4 * num_values + 600
    assert round(len(encode(sent).body) / 2**20, 2) == TABLE_IV_BATCHES_MIB


@pytest.mark.parametrize(
    ("name", "fraction", "share"), [("int8", 1, 1 / 4), ("bf16", 1, 1 / 2), ("topk", 0.1, 1 / 5)]
)
def test_the_bytes_of_codecs_beside_fp32(name: str, fraction: float, share: float) -> None:
    def sizes(codec: Codec) -> list[int]:
        form = AnswerForm(FEEDBACK, (10, *CIFAR), codec)
        images = torch.rand(3, 10, *CIFAR)
        out = batches(1, Samples(images), {1: (0, 1)}, swap_follows=False, last=False, codec=codec)
        return [len(encode(out).body), len(encode(answer({1: 0}, form)).body)]

    for coded, plain in zip(sizes(Codec(name, fraction)), sizes(FP32), strict=True):
        assert coded / plain == pytest.approx(share, rel=0.02)


# Labels.

LABELS = torch.arange(KAPPA * BATCH).view(KAPPA, BATCH) % 3


@pytest.mark.parametrize(
    "labels",
    [LABELS.int(), LABELS[:2], LABELS.unsqueeze(-1), LABELS - 1, LABELS + 1, LABELS.double(), None],
)
def test_labels_are_checked_by_the_host(labels: Tensor | None) -> None:
    pairs = {n: (n - 1, n % KAPPA) for n in range(1, KAPPA + 1)}
    message = batches(1, Samples(generated(), LABELS), pairs, swap_follows=False, last=False)
    tensors = {name: t for name, t in message.tensors.items() if name != "labels"}
    if labels is not None:
        tensors["labels"] = labels
    with pytest.raises((ValueError, KeyError), match="label"):
        read_batches(replace(message, tensors=tensors), FP32, FORM.shape, 3)
