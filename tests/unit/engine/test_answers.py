"""Answers of workers, as a host packs them and as the server reads them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mdgan.engine.answers import LEAST_TO_SUM, AnswerForm, Answers
from mdgan.engine.stages.contract import in_one_message, of_kind, pack_answers, read_answers
from mdgan.gan.codecs import Codec
from mdgan.gan.exact_sum import WEIGHTED
from mdgan.messages import Message

SHAPE = (2, 1, 2, 2)
FORM = AnswerForm("ANSWER", SHAPE)
TOLD = "told"
WITH_MORE = AnswerForm("ANSWER", SHAPE, sums=False, beside={TOLD: (2,)})


def answer_of(worker: int) -> Tensor:
    return 1e-3 * torch.randn(SHAPE, generator=torch.Generator().manual_seed(worker))


def losses_of(worker: int) -> Tensor:
    return torch.tensor([worker + 0.1, worker + 0.2])


def told_by(worker: int) -> Tensor:
    return torch.tensor([worker - 0.5, -worker])


def packed(groups: Mapping[int, int], form: AnswerForm = FORM) -> Message:
    answers = {worker: answer_of(worker) for worker in groups}
    losses = {worker: losses_of(worker) for worker in groups}
    told = {TOLD: {worker: told_by(worker) for worker in groups}}
    return pack_answers(9, answers, losses, groups, form, told)


def test_answers_and_losses_are_found_again_by_worker() -> None:
    message = packed({7: 0, 3: 1, 5: 0})
    assert (message.kind, message.iteration) == ("ANSWER", 9)
    read = read_answers(message, FORM)
    assert not read.sums
    assert list(read.singles) == list(read.losses) == [7, 3, 5]
    for worker, row in read.singles.items():
        assert torch.equal(row, answer_of(worker))
        assert torch.equal(read.losses[worker], losses_of(worker))
    assert torch.equal(read.mean_losses(), torch.stack([losses_of(n) for n in (3, 5, 7)]))


@pytest.mark.parametrize("num_workers", [LEAST_TO_SUM, 40, 1000])
def test_what_a_host_answers_does_not_grow_with_its_workers(num_workers: int) -> None:
    message = packed({worker: worker % 2 for worker in range(1, 2 * num_workers + 1)})
    read = read_answers(message, FORM)
    assert not read.singles
    assert [len(part.workers) for part in read.sums] == [num_workers] * 2
    numbers = sum(t.numel() * t.element_size() for n, t in message.tensors.items() if n != "losses")
    assert numbers == 2 * 8 * answer_of(1).numel()


def test_an_algorithm_says_how_answers_are_added_up() -> None:
    answers = {worker: answer_of(worker) for worker in (1, 2, 3)}
    losses = {worker: losses_of(worker) for worker in answers}
    together = dict.fromkeys(answers, 0)
    message = pack_answers(
        9,
        answers,
        losses,
        together,
        replace(FORM, arithmetic=WEIGHTED),
        None,
        {1: 0.0, 2: 10.0, 3: 0.0},
    )
    (part,) = read_answers(message, FORM).sums
    assert part.workers == (1, 2, 3)
    assert torch.allclose(part.total, 10 * answer_of(2).double(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_broken_answer_is_not_hidden_in_a_sum(wrong: float) -> None:
    answers = {worker: answer_of(worker) for worker in range(1, 6)}
    answers[2][0, 0, 1, 1] = wrong
    losses = dict.fromkeys(answers, torch.zeros(2))
    read = read_answers(pack_answers(1, answers, losses, dict.fromkeys(answers, 0), FORM), FORM)
    assert [part.workers for part in read.sums] == [(1, 3, 4, 5)]
    assert list(read.singles) == [2]


# What is told beside answers.


def test_what_is_told_beside_answers_is_found_again_by_worker() -> None:
    read = read_answers(packed({7: 0, 3: 0, 5: 0, 6: 1}, WITH_MORE), WITH_MORE)
    assert not read.sums
    assert list(read.singles) == list(read.beside[TOLD]) == [7, 3, 5, 6]
    assert all(torch.equal(row, told_by(worker)) for worker, row in read.beside[TOLD].items())


@pytest.mark.parametrize("wrong", [None, torch.zeros(2, 2), torch.zeros(()), torch.zeros(0)])
def test_what_has_not_a_row_a_worker_is_left_out(wrong: Tensor | None) -> None:
    honest = packed({1: 0, 2: 0, 3: 1}, WITH_MORE)
    tensors = {name: t for name, t in honest.tensors.items() if name != TOLD}
    if wrong is not None:
        tensors[TOLD] = wrong
    read = read_answers(Message("ANSWER", 9, honest.fields, tensors), WITH_MORE)
    assert not read.beside[TOLD]
    assert len(read.singles) == 3


# What a hostile host may send.


def test_a_sum_is_no_answer_where_the_algorithm_must_see_each() -> None:
    together = dict.fromkeys(range(1, 5), 0)
    assert len(read_answers(packed(together), FORM).sums) == 1
    assert read_answers(packed(together), AnswerForm("ANSWER", SHAPE, sums=False)) == Answers()


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
        ({"workers": [1, 1, 3], "summed": [[1, 1, 3]]}, ()),
        ({"workers": ["1", "2", "3"], "summed": [["1", "2", "3"]]}, ()),
        ({}, ()),
        ({"workers": [1, 2, 3], "summed": [[1, 2, 3]]}, ("sums.values",)),
        ({"workers": [1, 2, 3], "summed": [[1, 2, 3]]}, ("losses",)),
    ],
)
def test_an_answer_that_does_not_fit_is_none(
    fields: dict[str, object], left_out: tuple[str, ...]
) -> None:
    honest = packed({1: 0, 2: 0, 3: 0})
    tensors = {name: t for name, t in honest.tensors.items() if name not in left_out}
    assert read_answers(Message("ANSWER", 9, fields, tensors), FORM) == Answers()


@pytest.mark.parametrize(
    "wrong", [torch.zeros(1, 2, 1, 2, 3), torch.zeros(2, *SHAPE), torch.zeros(1, *SHAPE).long()]
)
def test_an_answer_of_another_shape_or_type_is_none(wrong: Tensor) -> None:
    honest = packed({1: 0})
    tensors = {**honest.tensors, "answers.values": wrong}
    assert read_answers(Message("ANSWER", 9, honest.fields, tensors), FORM) == Answers()


def test_a_dropped_worker_takes_those_along_that_it_was_added_up_with() -> None:
    read = read_answers(packed({1: 0, 2: 0, 3: 0, 4: 1, 5: 1}), FORM)
    read.drop(4)
    assert list(read.singles) == [5]
    assert sorted(read.losses) == [1, 2, 3, 5]
    read.drop(2)
    assert not read.sums
    assert sorted(read.losses) == [5]


# Codecs.


def test_sums_go_through_a_codec_too() -> None:
    form = AnswerForm("ANSWER", SHAPE, Codec("int8"))
    (part,) = read_answers(packed(dict.fromkeys(range(1, 6), 0), form), form).sums
    whole = sum((answer_of(worker) for worker in range(1, 6)), torch.zeros(SHAPE))
    largest = whole.flatten(1).abs().amax(1).view(-1, 1, 1, 1)
    assert ((part.total - whole).abs() <= largest / 127 / 2 * 1.01).all()


def test_what_is_told_may_have_another_length_for_each_worker() -> None:
    told = {7: torch.ones(2, 3), 3: torch.zeros(4, 3)}
    forms = {n: replace(WITH_MORE, beside={TOLD: tuple(t.shape)}) for n, t in told.items()}
    answers, losses = ({n: make(n) for n in told} for make in (answer_of, losses_of))
    message = pack_answers(9, answers, losses, dict.fromkeys(told, 0), WITH_MORE, {TOLD: told})
    read = read_answers(message, WITH_MORE, forms)
    assert all(torch.equal(read.beside[TOLD][worker], told[worker]) for worker in told)
    forms[3] = replace(WITH_MORE, beside={TOLD: (5, 3)})
    assert not read_answers(message, WITH_MORE, forms).beside[TOLD]


def test_answers_of_several_forms_travel_in_one_message() -> None:
    other = AnswerForm("OTHER", SHAPE)
    mine, theirs = packed({7: 0}), packed({3: 0, 5: 0}, other)
    assert in_one_message([mine]) is mine
    message = in_one_message([mine, theirs])
    for form, workers in ((FORM, [7]), (other, [3, 5])):
        assert list(read_answers(of_kind(message, form.kind), form).singles) == workers
    assert not read_answers(of_kind(message, "THIRD"), FORM).singles
    for nonsense in ([7], "OTHER", None):
        broken = replace(message, fields={"ANSWER": nonsense})
        assert not read_answers(of_kind(broken, "ANSWER"), FORM).singles
