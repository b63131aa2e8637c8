import pytest
import torch
from torch import nn

from mdgan import messages
from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.engine import message_sizes as schema
from mdgan.families.mdgan import messages as iteration_messages
from mdgan.families.mdgan.messages import BATCHES, DISCRIMINATORS, FEEDBACK, Form
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState
from mdgan.messages import Kind, Message
from mdgan.transport.wire import HEADER_BYTES, encoded_bytes

SHAPE, BATCH = (3, 8, 8), 16


class Samples(Partitioner):
    """A data set of noise."""

    def __init__(self, count: int) -> None:
        self._images = torch.rand(count, *SHAPE)
        self.labels = torch.zeros(count, dtype=torch.int64)

    def images(self, indices: torch.Tensor) -> torch.Tensor:
        return self._images[indices]


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Dropout(0.3), nn.Linear(288, 1)
    )


def worker(num_samples: int) -> Worker:
    """One that has trained a step, so that its optimizer has all its state."""
    network = model()
    made = Worker(
        Discriminator(network, torch.optim.Adam(network.parameters())),
        Shard(Samples(num_samples), torch.arange(num_samples), torch.Generator()),
        RandomState(1, torch.device("cpu")),
        batch_size=BATCH,
        local_steps=1,
        discriminator_loss=DISCRIMINATOR_LOSSES["bce"],
        generator_loss=GENERATOR_LOSSES["non-saturating"],
    )
    network(torch.rand(BATCH, *SHAPE)).sum().backward()
    made.discriminator.optimizer.step()
    made.batches.next_batch(BATCH)
    return made


SIZES = schema.Sizes(SHAPE, BATCH, schema.state_bytes(model()))


def body_bytes(message: Message) -> int:
    return encoded_bytes(message) - HEADER_BYTES


@pytest.mark.parametrize("num_workers", [1, 3, 40])
@pytest.mark.parametrize("verdicts", [False, True])
def test_feedback_fits_and_little_more_does(num_workers: int, verdicts: bool) -> None:
    workers = range(10**6, 10**6 + num_workers)
    feedback = iteration_messages.feedback(
        10**12,
        {worker: torch.zeros(BATCH, *SHAPE) for worker in workers},
        {worker: torch.zeros(2) for worker in workers},
        dict.fromkeys(workers, 0),
        Form((BATCH, *SHAPE), sums=False, verdicts=verdicts),
        dict.fromkeys(workers, torch.zeros(BATCH)),
    )
    most = schema.from_host(SIZES, [100] * num_workers)[FEEDBACK]
    spare = (64 + 4 * BATCH) * num_workers + (8 << 10)
    assert body_bytes(feedback) <= most < body_bytes(feedback) + spare


@pytest.mark.parametrize("num_samples", [BATCH, 100_000])
def test_states_of_workers_fit(num_samples: int) -> None:
    states = {n: worker(num_samples).state() for n in (1, 2)}
    state = messages.state(5, states, "checkpoint")
    assert body_bytes(state) <= schema.from_host(SIZES, [num_samples] * 2)[Kind.STATE]
    adopt = messages.adopt(5, states)
    assert body_bytes(adopt) <= schema.from_server(SIZES, [num_samples] * 2)[Kind.ADOPT]


def test_discriminators_fit() -> None:
    states = {n: worker(BATCH).discriminator.state() for n in range(1, 6)}
    parcel = messages.discriminators(5, states)
    assert body_bytes(parcel) <= schema.between_hosts(SIZES, 5)[DISCRIMINATORS]


@pytest.mark.parametrize("num_workers", [1, 2, 50])
def test_batches_fit_whatever_kappa_is(num_workers: int) -> None:
    assignment = {n: (2 * n, 2 * n + 1) for n in range(num_workers)}
    generated = torch.zeros(2 * num_workers, BATCH, *SHAPE)
    sent = iteration_messages.batches(7, generated, assignment, swap_follows=True, last=False)
    assert body_bytes(sent) <= schema.from_server(SIZES, [1] * num_workers)[BATCHES]


def test_what_only_the_other_side_sends_is_not_accepted() -> None:
    host, server = schema.from_host(SIZES, [10]), schema.from_server(SIZES, [10])
    assert not host.keys() & server.keys()
    assert list(schema.between_hosts(SIZES, 1)) == [DISCRIMINATORS]
    never = {Kind.HELLO, Kind.WELCOME, Kind.REFUSED, Kind.CLOCK, Kind.GENERATOR, Kind.SCORES}
    assert not never & {*host, *server}


def test_no_host_is_believed_to_have_any_number_of_samples() -> None:
    honest = schema.from_host(SIZES, [1000])[Kind.STATE]
    assert schema.from_host(SIZES, [-(10**30)])[Kind.STATE] <= honest
    assert schema.from_host(SIZES, [10**30])[Kind.STATE] < 5 << 30


def test_sums_over_real_samples_fit() -> None:
    d = 2048  # inception's features
    assert 2 * 8 * d * (d + 1) < schema.from_host(SIZES, [10])[Kind.REAL] < 1 << 29
