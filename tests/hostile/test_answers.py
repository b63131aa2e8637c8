"""A host that lies in what it answers to the server's questions."""

from math import nan
from pathlib import Path

import pytest
import torch

from mdgan.messages import Kind, Message
from tests.hostile.bench import (
    ANSWER,
    HONEST,
    RANK,
    Hostile,
    hostile_run,
    with_fields,
    with_tensor,
)
from tests.processes import read_events, read_metrics


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


def test_a_host_measures_its_own_clients_alone(tmp_path: Path) -> None:
    tiny = {"seconds": [[4, 0.1]], "memory_bytes": 1, "fixed_bytes": 1, "bytes_per_sample": 1}
    told = {"capabilities": {str(rank): tiny for rank in range(1, 10)}}
    liar = Hostile(Kind.READY, lambda message: with_fields(message, told=told))
    flags = ["--training-load", "measured"]
    ran = hostile_run(tmp_path, liar, "fl-gan", flags, may_be_believed=True)
    assert not ran.harm
    sizes = [event["batch_sizes"] for event in read_events(ran.folder, "round")]
    assert {of_round[str(rank)] for of_round in sizes for rank in HONEST} == {4}
    assert {of_round[str(RANK)] for of_round in sizes} == {1}, "of itself it may say so"
