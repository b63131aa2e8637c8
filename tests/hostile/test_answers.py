"""A host that lies in what it answers to the server's questions."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.messages import Message
from tests.hostile.bench import (
    ANSWER,
    RANK,
    Hostile,
    hostile_run,
    with_fields,
    with_tensor,
    with_tensors,
)
from tests.processes import read_metrics

FAR = 10**6
"""An iteration that no run here reaches."""


def with_a_sum_of_no_worker(message: Message, value: float = 0.0) -> Message:
    """Beside the honest answer, the sum of the answers of no worker."""
    values = message.tensors.get("answers.values", message.tensors.get("sums.values"))
    assert values is not None
    empty = torch.full((1, *values.shape[1:]), value, dtype=torch.float64)
    summed = [*message.fields["summed"], []]
    sums = message.tensors.get("sums.values", values[:0].double())
    changed = with_fields(message, summed=summed)
    return with_tensor(changed, "sums.values", torch.cat([sums, empty]))


@pytest.mark.parametrize(
    "family", ["mdgan", "fl-gan", *(pytest.param(f, marks=pytest.mark.slow) for f in ("paragan",))]
)
@pytest.mark.parametrize("value", [nan, pytest.param(0.0, marks=pytest.mark.slow)])
def test_a_sum_of_no_workers(tmp_path: Path, family: str, value: float) -> None:
    liar = Hostile(ANSWER[family], lambda message: with_a_sum_of_no_worker(message, value))
    ran = hostile_run(tmp_path, liar, family)
    assert not ran.harm
    assert ran.attendance()[str(RANK)]["refused"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("family", list(ANSWER))
@pytest.mark.parametrize("value", [nan, inf, 3e38])
def test_answers_that_are_no_numbers(tmp_path: Path, family: str, value: float) -> None:
    def break_it(tensor: Tensor) -> Tensor:
        return torch.full_like(tensor, value)

    liar = Hostile(ANSWER[family], lambda message: with_tensors(message, break_it), 2)
    assert not hostile_run(tmp_path, liar, family).harm


@pytest.mark.parametrize(
    "family", ["mdgan", *(pytest.param(f, marks=pytest.mark.slow) for f in list(ANSWER)[1:])]
)
def test_answers_to_questions_that_nobody_asked(tmp_path: Path, family: str) -> None:
    def answer_ahead(message: Message) -> list[Message]:
        return [replace(message, iteration=FAR + n) for n in range(3)] + [message]

    assert not hostile_run(tmp_path, Hostile(ANSWER[family], answer_ahead, 2), family).harm


@pytest.mark.parametrize(
    "family", ["mdgan", *(pytest.param(f, marks=pytest.mark.slow) for f in ("fl-gan", "paragan"))]
)
def test_a_loss_that_is_no_number_is_its_senders_alone(tmp_path: Path, family: str) -> None:
    def lose(message: Message) -> Message:
        return with_tensor(message, "losses", torch.full((1, 2), nan))

    ran = hostile_run(tmp_path, Hostile(ANSWER[family], lose), family, ["--log-interval", "1"])
    assert not ran.harm
    assert not ran.out  # its answers are as good as they were
    rows = [row for row in read_metrics(ran.folder) if "event" not in row]
    assert rows
    for row in rows:
        assert row["generator_loss"] is not None
        assert row["discriminator_loss"] is not None
        assert row["by_worker"][str(RANK)] == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("family", list(ANSWER))
@pytest.mark.parametrize("iteration", [-1, 0, 1])
def test_answers_to_questions_of_before(tmp_path: Path, family: str, iteration: int) -> None:
    def repeat(message: Message) -> list[Message]:
        return [message, replace(message, iteration=iteration), message]

    assert not hostile_run(tmp_path, Hostile(ANSWER[family], repeat, 2), family).harm
