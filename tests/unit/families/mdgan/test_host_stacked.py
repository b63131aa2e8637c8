"""A real host whose workers compute all at once, beside one whose workers go one by one."""

import torch
from torch import nn

from mdgan import messages
from mdgan.families.mdgan.messages import FEEDBACK, SWAPPED, swap
from mdgan.families.mdgan.worker import StackedWorkers, Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.messages import Kind
from tests.unit.families.mdgan.played_server import PlayedServer, answer, batches
from tests.unit.families.mdgan.stage import make_worker, same_state
from tests.unit.gan import small

RANKS = (1, 2, 3)


def make_workers() -> dict[int, Worker]:
    """Without dropout, whose masks would differ."""
    workers = {rank: make_worker(rank, model_seed=rank) for rank in RANKS}
    for worker in workers.values():
        layers = worker.discriminator.model.children()
        model = nn.Sequential(*(layer for layer in layers if type(layer) is not nn.Dropout))
        worker.discriminator = Discriminator(model, small.adam(model))
    return workers


def rotate(workers: dict[int, Worker]) -> None:
    owned = {rank: worker.discriminator for rank, worker in workers.items()}
    for giver, taker in ((1, 2), (2, 3), (3, 1)):
        workers[taker].take(owned[giver])


def test_it_answers_swaps_and_saves_as_one_by_one(server: PlayedServer) -> None:
    workers, reference = make_workers(), make_workers()
    server.starts(workers, group=StackedWorkers(workers, small.SHAPE))
    server.take(Kind.READY)

    def check(iteration: int, asked: dict[int, Worker], *, swap_follows: bool = False) -> None:
        server.send(batches(iteration, asked, swap=swap_follows))
        message = server.take(FEEDBACK)
        expected = torch.stack([answer(worker, iteration) for worker in asked.values()])
        got = message.tensors.get("answers.values")
        if got is None:  # three that judge the same batch are added up
            got, expected = message.tensors["sums.values"][0], expected.sum(0)
        torch.testing.assert_close(got.float(), expected, rtol=1e-3, atol=1e-5)

    check(1, reference)
    check(2, reference, swap_follows=True)
    server.send(swap(2, {1: 2, 2: 3, 3: 1}, dict.fromkeys(RANKS, 1), {}))
    swapped = server.take(SWAPPED)
    assert len(swapped.fields["taken"]) == len(RANKS)
    rotate(reference)
    check(3, {3: reference[3], 1: reference[1]})
    check(4, reference)
    server.send(messages.checkpoint(4, [], to_server=True))
    saved = messages.by_worker(server.take(Kind.STATE))
    assert server.stop() is None
    assert all(same_state(saved[rank], worker.state()) for rank, worker in workers.items())
