"""Slots as processes give the sums of one thread, also when slots die; none outlives its host."""

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor

from mdgan.families.federated.messages import ClientTask, Load
from mdgan.families.federated.slots import SlotProcesses, Slots, SlotsDied, Train
from mdgan.gan.exact_sum import weighted_sum
from tests.unit.gan.small import same_bits

SHAPE = (2, 5)
MODELS = torch.linspace(-1, 1, 10).view(SHAPE)


def found_by(client: int) -> Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(client)) + MODELS


def played(task: ClientTask, models: Tensor, iteration: int) -> tuple[Tensor, Tensor]:
    """Trains nothing: what a client finds depends on its number and on what it was sent."""
    assert same_bits(models, MODELS)
    return found_by(task.client), torch.tensor([task.client, iteration], dtype=torch.float32)


def tasks(*clients: int) -> list[ClientTask]:
    return [ClientTask(client, Load(client + 1, 4), 1 / (client + 1)) for client in clients]


def sum_of(*clients: int) -> Tensor:
    given = tasks(*clients)
    return weighted_sum({t.client: found_by(t.client) for t in given}, {t[0]: t[2] for t in given})


Play = Callable[[ClientTask, Tensor, int], tuple[Tensor, Tensor]]


def by_twos(play: Play) -> Train:
    """Clients in groups of two; each does what it does alone."""

    def train(
        given: Sequence[ClientTask], models: Tensor, iteration: int
    ) -> Iterator[list[tuple[ClientTask, Tensor, Tensor]]]:
        for first in range(0, len(given), 2):
            yield [(task, *play(task, models, iteration)) for task in given[first : first + 2]]

    return train


@pytest.fixture(autouse=True)
def no_garbage_of_other_tests() -> None:
    """Keeps slots from destroying links of earlier tests, whose threads no fork has."""
    gc.collect()
    gc.freeze()


@contextmanager
def processes(play: Play = played, most: int = 4, *, gives_all: bool = False) -> Iterator[Slots]:
    slots = SlotProcesses(SHAPE, lambda _: by_twos(play), gives_all, most=most)
    try:
        yield slots
    finally:
        slots.close()


def test_each_slot_trains_with_what_was_made_for_it() -> None:
    def play(slot: int) -> Play:
        return lambda _task, models, _iteration: (torch.full_like(models, slot), torch.zeros(2))

    slots = SlotProcesses(SHAPE, lambda slot: by_twos(play(slot)), gives_all=True, most=3)
    try:
        work = slots.train([tasks(1), tasks(2), tasks(3)], torch.zeros(SHAPE), 1)
    finally:
        slots.close()
    assert {n: float(models.mean()) for n, models in work.models.items()} == {
        1: 0.0,
        2: 1.0,
        3: 2.0,
    }


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param([[1, 2, 3, 4, 5]], id="one slot"),
        pytest.param([[5, 1], [], [3, 2, 4]], id="three slots, one idle"),
        pytest.param([[1], [2], [3], [4], [5]], id="more lists than slots"),
    ],
)
def test_any_slots_find_the_same_sum(lists: Sequence[Sequence[int]]) -> None:
    with processes() as slots:
        for made in (slots, Slots(SHAPE, lambda _: by_twos(played)), slots):
            told, total, result = made.train([tasks(*own) for own in lists], MODELS, 7)
            assert not result
            assert same_bits(total, sum_of(1, 2, 3, 4, 5))
            assert sorted(each.client for each in told) == [1, 2, 3, 4, 5]
            assert {each.client: each.losses for each in told} == {n: (n, 7) for n in range(1, 6)}


def test_slots_give_the_models_of_every_client_that_can_be_used() -> None:
    def train(task: ClientTask, models: Tensor, iteration: int) -> tuple[Tensor, Tensor]:
        result, losses = played(task, models, iteration)
        return (result.fill_(float("nan")) if task.client == 2 else result), losses

    with processes(train, gives_all=True) as slots:
        for made in (slots, Slots(SHAPE, lambda _: by_twos(train), gives_all=True)):
            told, total, outcome = made.train([tasks(1, 2), tasks(3)], MODELS, 7)
            assert same_bits(total, sum_of(1, 3))
            assert {each.client: each.usable for each in told} == {1: True, 2: False, 3: True}
            assert sorted(outcome) == [1, 3]
            assert all(same_bits(outcome[n], found_by(n)) for n in outcome)


def dying_at(client: int, until: Callable[[], bool]) -> Play:
    """A slot that is killed before a client is trained, until something is so."""

    def train(task: ClientTask, models: Tensor, iteration: int) -> tuple[Tensor, Tensor]:
        if task.client == client and not until():
            os.kill(os.getpid(), signal.SIGKILL)
        return played(task, models, iteration)

    return train


def test_the_clients_of_a_slot_that_dies_are_trained_again_and_counted_once(tmp_path: Path) -> None:
    first_time = tmp_path / "died"

    def has_died() -> bool:
        if first_time.exists():
            return True
        first_time.touch()
        return False

    with processes(dying_at(2, has_died), gives_all=True) as slots:
        told, total, result = slots.train([tasks(1, 2, 3), tasks(4, 5)], MODELS, 7)
    assert first_time.exists()
    assert sorted(result) == [1, 2, 3, 4, 5]
    assert same_bits(total, sum_of(1, 2, 3, 4, 5))
    assert sorted(each.client for each in told) == [1, 2, 3, 4, 5]


def test_slots_that_always_die_are_given_up() -> None:
    match = pytest.raises(SlotsDied, match="3 times a slot died")
    with processes(dying_at(1, lambda: False)) as slots, match:
        slots.train([tasks(1)], MODELS, 7)


def test_without_a_fork_server_the_slots_that_live_go_on_and_no_other_begins() -> None:
    before = set(psutil.Process().children())
    with processes() as slots:
        (fork_server,) = set(psutil.Process().children()) - before
        slots.train([tasks(1)], MODELS, 7)
        fork_server.kill()
        fork_server.wait()
        assert same_bits(slots.train([tasks(1)], MODELS, 7).total, sum_of(1))
        with pytest.raises(SlotsDied, match="3 times a slot died"):
            slots.train([tasks(1), tasks(2)], MODELS, 7)


def test_slots_end_with_their_host_however_it_ends() -> None:
    """All processes hold the writing end of a pipe: it is at its end when the last is gone."""
    reading, writing = os.pipe()
    host = os.fork()
    if host == 0:
        os.close(reading)
        with processes() as slots:
            slots.train([tasks(1), tasks(2)], MODELS, 7)
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    os.waitpid(host, 0)
    assert os.read(reading, 1) == b""
    os.close(reading)
