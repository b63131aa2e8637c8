"""Batches and feedback, as they leave and as they are read on the other side."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mdgan.settings.experiment import Experiment
from torch import Tensor

from mdgan.families.mdgan.aggregation import aggregate
from mdgan.families.mdgan.algorithm import Assignment, assign
from mdgan.families.mdgan.messages import (
    BATCHES,
    FEEDBACK,
    LEAST_TO_SUM,
    Form,
    batches,
    feedback,
    read_batches,
    read_feedback,
)
from mdgan.gan.codecs import Codec, parse_codec
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Message
from mdgan.transport.wire import HEADER_BYTES, encode, encoded_bytes

KAPPA, BATCH, SHAPE = 5, 2, (1, 2, 2)
FORM = Form((BATCH, *SHAPE))
WITH_VERDICTS = Form((BATCH, *SHAPE), sums=False, verdicts=True)
CIFAR = (3, 32, 32)
TABLE_IV_BATCHES_MIB = 0.23  # Hardy et al., Table IV: C→W at a worker, b = 10
quick = settings(deadline=None, max_examples=60)
indices = st.integers(0, KAPPA - 1)
assignments = st.dictionaries(st.integers(1, 99), st.tuples(indices, indices), min_size=1)


def generated() -> Tensor:
    return torch.arange(KAPPA * BATCH * 4, dtype=torch.float32).view(KAPPA, BATCH, *SHAPE)


def feedback_of(worker: int, shape: tuple[int, ...] = (BATCH, *SHAPE)) -> Tensor:
    return 1e-3 * torch.randn(shape, generator=torch.Generator().manual_seed(worker))


def answer(judged: dict[int, int], form: Form = FORM) -> Message:
    feedbacks = {worker: feedback_of(worker, form.sample_shape) for worker in judged}
    losses = {worker: torch.tensor([worker + 0.1, worker + 0.2]) for worker in judged}
    verdicts = {worker: verdicts_of(worker) for worker in judged}
    return feedback(9, feedbacks, losses, judged, form, verdicts)


def verdicts_of(worker: int) -> Tensor:
    return torch.tensor([worker - 0.5, -worker])


@quick
@given(assignments)
def test_each_batch_that_is_used_is_sent_once_and_found_again(
    assignment: dict[int, tuple[int, int]],
) -> None:
    message = batches(3, generated(), assignment, swap_follows=True, last=False)
    assert (message.kind, message.iteration) == (BATCHES, 3)
    work = read_batches(message, FORM)
    used = {index for pair in assignment.values() for index in pair}
    assert work.generated.shape == (len(used), BATCH, *SHAPE)
    assert list(work.assignment) == list(assignment)
    for n, (judge, train) in assignment.items():
        assert torch.equal(work.generated[work.assignment[n].judge], generated()[judge])
        assert torch.equal(work.generated[work.assignment[n].train], generated()[train])
        assert work.judged[n] == work.assignment[n].judge


def test_a_batch_used_by_three_workers_is_sent_once() -> None:
    assignment = {4: (1, 3), 5: (3, 1), 6: (1, 1)}
    message = batches(1, generated(), assignment, swap_follows=False, last=True)
    assert torch.equal(message.tensors["batches.values"], generated()[[1, 3]])
    assert message.fields == {
        "judge": {"4": 0, "5": 1, "6": 0},
        "train": {"4": 1, "5": 0, "6": 0},
        "swap_follows": False,
        "last": True,
    }


def test_feedback_and_losses_are_found_again_by_worker() -> None:
    message = answer({7: 0, 3: 1, 5: 0})
    assert (message.kind, message.iteration) == (FEEDBACK, 9)
    read = read_feedback(message, FORM)
    assert not read.sums
    assert list(read.singles) == list(read.losses) == [7, 3, 5]
    for worker, row in read.singles.items():
        assert torch.equal(row, feedback_of(worker))
        assert torch.equal(read.losses[worker], torch.tensor([worker + 0.1, worker + 0.2]))


@quick
@given(
    judged=st.dictionaries(st.integers(1, 40), st.integers(0, 3), min_size=1, max_size=12),
    hosts=st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_who_adds_up_what_cannot_change_a_bit(judged: dict[int, int], hosts: list[int]) -> None:
    assignment = {worker: Assignment(batch, batch) for worker, batch in judged.items()}
    feedbacks = {worker: feedback_of(worker) for worker in judged}
    alone = aggregate(feedbacks, assignment, 4)

    singles: dict[int, Tensor] = {}
    sums: list[PartialSum] = []
    for host in set(hosts):
        here = {n: j for (n, j), at in zip(judged.items(), hosts, strict=False) if at == host}
        if here:
            read = read_feedback(answer(here), FORM)
            singles |= read.singles
            sums += read.sums
    assert torch.equal(aggregate(singles, assignment, 4, sums), alone)


@pytest.mark.parametrize("num_workers", [LEAST_TO_SUM, 40, 1000])
def test_what_a_host_answers_does_not_grow_with_its_workers(num_workers: int) -> None:
    message = answer({worker: worker % 2 for worker in range(1, 2 * num_workers + 1)})
    read = read_feedback(message, FORM)
    assert not read.singles
    assert [len(part.workers) for part in read.sums] == [num_workers] * 2
    images = sum(t.numel() * t.element_size() for n, t in message.tensors.items() if n != "losses")
    assert images == 2 * 8 * BATCH * 4


def test_verdicts_are_found_again_by_worker() -> None:
    read = read_feedback(answer({7: 0, 3: 0, 5: 0, 6: 1}, WITH_VERDICTS), WITH_VERDICTS)
    assert not read.sums
    assert list(read.singles) == list(read.verdicts) == [7, 3, 5, 6]
    assert all(torch.equal(row, verdicts_of(worker)) for worker, row in read.verdicts.items())


@pytest.mark.parametrize("rule", ["mean", "median", "krum:1", "clip:1"])
def test_verdicts_take_no_bytes_where_nobody_asks_for_them(rule: str) -> None:
    form = Form.of(Experiment(world_size=9, aggregation=rule, batch_size=BATCH), SHAPE)
    judged = {1: 0, 2: 1}
    feedbacks = {worker: feedback_of(worker) for worker in judged}
    losses = {worker: torch.tensor([worker + 0.1, worker + 0.2]) for worker in judged}
    without = encode(feedback(9, feedbacks, losses, judged, form))
    assert all(map(torch.equal, encode(answer(judged, form)), without))
    assert not read_feedback(answer(judged, WITH_VERDICTS), form).verdicts


@pytest.mark.parametrize("wrong", [None, torch.zeros(2, BATCH), torch.zeros(()), torch.zeros(0)])
def test_verdicts_that_belong_to_nobody_are_none(wrong: Tensor | None) -> None:
    honest = answer({1: 0, 2: 0, 3: 1}, WITH_VERDICTS)
    tensors = {name: t for name, t in honest.tensors.items() if name != "verdicts"}
    if wrong is not None:
        tensors["verdicts"] = wrong
    read = read_feedback(Message(FEEDBACK, 9, honest.fields, tensors), WITH_VERDICTS)
    assert not read.verdicts
    assert len(read.singles) == 3


@pytest.mark.parametrize("rule", ["median", "f2u", "f2a"])
def test_a_sum_is_no_answer_where_the_rule_must_see_each(rule: str) -> None:
    form = Form.of(Experiment(world_size=9, aggregation=rule, batch_size=BATCH), SHAPE)
    judged = dict.fromkeys(range(1, 5), 0)
    assert len(read_feedback(answer(judged), FORM).sums) == 1
    read = read_feedback(answer(judged), form)
    assert not read.sums
    assert not read.singles


def test_rules_that_vote_see_every_answer() -> None:
    for rule, sums in (("mean", True), ("median", False), ("krum:1", False), ("f2u", False)):
        form = Form.of(Experiment(world_size=9, aggregation=rule, batch_size=BATCH), SHAPE)
        read = read_feedback(answer(dict.fromkeys(range(1, 9), 0), form), form)
        assert (len(read.sums), len(read.singles)) == ((1, 0) if sums else (0, 8))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_broken_feedback_is_not_hidden_in_a_sum(wrong: float) -> None:
    feedbacks = {worker: feedback_of(worker) for worker in range(1, 6)}
    feedbacks[2][0, 0, 1, 1] = wrong
    losses = dict.fromkeys(feedbacks, torch.zeros(2))
    read = read_feedback(feedback(1, feedbacks, losses, dict.fromkeys(feedbacks, 0), FORM), FORM)
    assert [part.workers for part in read.sums] == [(1, 3, 4, 5)]
    assert list(read.singles) == [2]


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"workers": [1, 2, 3], "summed": [[1, 2, 9]]}, ()),
        ({"workers": [1, 2, 3], "summed": [[1, 1, 2, 3]]}, ()),
        ({"workers": [1, 2, 3], "summed": [[1, 2, 3], [1, 2, 3]]}, ()),
        ({"workers": [1, 2, 3], "summed": [[]]}, ()),
        ({"workers": [1, 2, 3], "summed": 7}, ()),
        ({"workers": [1, 2, 3], "summed": [7]}, ()),
        ({"workers": [1, 2, 3], "summed": []}, ()),
        ({"workers": [1, 2, 3], "summed": [[1, 2, 3]]}, ("sums.values",)),
        ({"workers": [1, 2, 3], "summed": [[1, 2, 3]]}, ("losses",)),
    ],
)
def test_an_answer_that_does_not_fit_is_none(
    fields: dict[str, object], left_out: tuple[str, ...]
) -> None:
    honest = answer({1: 0, 2: 0, 3: 0})
    tensors = {name: t for name, t in honest.tensors.items() if name not in left_out}
    read = read_feedback(Message(FEEDBACK, 9, fields, tensors), FORM)
    assert not read.singles
    assert not read.sums


def test_fp32_takes_the_bytes_of_table_iii_and_iv() -> None:
    b, d = 10, 3 * 32 * 32
    images = torch.zeros(3, b, *CIFAR)
    form = Form((b, *CIFAR))
    sent = batches(1, images, {1: assign([1], 3)[1]}, swap_follows=False, last=False)
    back = answer({1: 0}, form)
    for message, num_values in ((sent, 2 * b * d), (back, b * d)):  # 2bd and bd floats
        size = encoded_bytes(message)
        assert size == sum(len(part) for part in encode(message))
        assert 4 * num_values < size < 4 * num_values + HEADER_BYTES + 400
    assert round(encoded_bytes(sent) / 2**20, 2) == TABLE_IV_BATCHES_MIB


@pytest.mark.parametrize(
    ("codec", "share"), [("int8", 1 / 4), ("bf16", 1 / 2), ("topk:0.1", 1 / 5)]
)
def test_the_bytes_of_codecs_beside_fp32(codec: str, share: float) -> None:
    def sizes(wire: str) -> list[int]:
        form = Form((10, *CIFAR), parse_codec(wire), parse_codec(wire))
        images = torch.rand(3, 10, *CIFAR)
        out = batches(
            1, images, {1: (0, 1)}, swap_follows=False, last=False, codec=parse_codec(wire)
        )
        return [encoded_bytes(out), encoded_bytes(answer({1: 0}, form))]

    for coded, plain in zip(sizes(codec), sizes("fp32"), strict=True):
        assert coded / plain == pytest.approx(share, rel=0.02)


def test_sums_go_through_a_codec_too() -> None:
    form = Form((BATCH, *SHAPE), feedback=Codec("int8"))
    (part,) = read_feedback(answer(dict.fromkeys(range(1, 6), 0), form), form).sums
    whole = sum((feedback_of(worker) for worker in range(1, 6)), torch.zeros(BATCH, *SHAPE))
    largest = whole.flatten(1).abs().amax(1).view(-1, 1, 1, 1)
    assert ((part.total - whole).abs() <= largest / 127 / 2 * 1.01).all()
