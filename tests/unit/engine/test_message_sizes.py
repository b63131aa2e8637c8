import math

import pytest
import torch
from torch import nn

from mdgan import messages
from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.engine import message_sizes
from mdgan.engine.stages.contract import pack_answers
from mdgan.engine.stages.mask import CODE_BYTES, SEAL_BYTES, Survivors, as_fields
from mdgan.families import registry
from mdgan.families.federated.messages import (
    ROUND,
    TRAINED,
    UPDATE,
    ClientReport,
    ClientTask,
    HostReport,
    Load,
    order,
    report_message,
    update_form,
)
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.messages import (
    BATCHES,
    DISCRIMINATORS,
    FEEDBACK,
    OUTPUTS,
    batches,
    feedback_form,
    image_codec,
)
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import Models
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.randomness import RandomState
from mdgan.messages import Kind, Message, of_workers
from mdgan.observe.tracer import MOST_SPANS
from mdgan.transport.frames import Most, encode

SHAPE, BATCH = (3, 8, 8), 16


class Noise(Partitioner):
    """A data set of noise."""

    def __init__(self, count: int) -> None:
        self._images = torch.rand(count, *SHAPE)
        self.labels = torch.zeros(count, dtype=torch.int64)

    def images(self, indices: torch.Tensor) -> torch.Tensor:
        return self._images[indices]


def generator() -> nn.Module:
    return nn.Sequential(nn.Linear(4, math.prod(SHAPE)), nn.Unflatten(1, SHAPE))


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Dropout(0.3), nn.Linear(288, 1)
    )


def worker(num_samples: int) -> Worker:
    """One that has trained a step, so that its optimizer has all its state."""
    network = model()
    made = Worker(
        Discriminator(network, torch.optim.Adam(network.parameters())),
        Shard(Noise(num_samples), torch.arange(num_samples), torch.Generator()),
        RandomState(1, torch.device("cpu")),
        LearningRules(BATCH, 1, DISCRIMINATOR_LOSSES["bce"], GENERATOR_LOSSES["non-saturating"]),
    )
    network(torch.rand(BATCH, *SHAPE)).sum().backward()
    made.discriminator.optimizer.step()
    made.batches.next_batch(BATCH)
    return made


MODELS = Models("noise", SHAPE, 4, generator, model)
SETTINGS = MDGANSettings(batch_size=BATCH, step_samples=48)
BUILDER = registry.algorithm("mdgan").build()
SIZES = BUILDER.message_sizes(SETTINGS, MODELS)
PAPER_SIZES = BUILDER.message_sizes(MDGANSettings(batch_size=BATCH), MODELS)


def body_bytes(message: Message) -> int:
    return len(encode(message).body)


def fits(message: Message, most: Most) -> bool:
    body = encode(message).body
    return len(body) <= most.body_bytes and int.from_bytes(body[:8], "little") <= most.head_bytes


@pytest.mark.parametrize("num_workers", [1, 3, 40])
@pytest.mark.parametrize("verdicts", [False, True])
def test_feedback_fits_and_little_more_does(num_workers: int, verdicts: bool) -> None:
    workers = range(10**6, 10**6 + num_workers)
    rule = "f2u" if verdicts else "median"
    settings = MDGANSettings.read({"batch_size": BATCH, "aggregation": rule, "world_size": 9})
    feedback = pack_answers(
        10**12,
        {worker: torch.zeros(BATCH, *SHAPE) for worker in workers},
        {worker: torch.zeros(2) for worker in workers},
        dict.fromkeys(workers, 0),
        feedback_form(settings, SHAPE),
        {OUTPUTS: dict.fromkeys(workers, torch.zeros(BATCH))},
    )
    most = message_sizes.from_host(SIZES, num_workers)[FEEDBACK]
    spare = (64 + 4 * BATCH) * num_workers + (8 << 10)
    assert fits(feedback, most)
    assert most.body_bytes < body_bytes(feedback) + spare
    assert most.head_bytes < 1 << 17


@pytest.mark.parametrize("num_samples", [BATCH, 100_000])
def test_states_of_workers_fit(num_samples: int) -> None:
    states = {n: worker(num_samples).state() for n in (1, 2)}
    state = messages.state(5, states, "checkpoint")
    assert fits(state, message_sizes.from_host(SIZES, 2)[Kind.STATE])
    adopt = messages.adopt(5, states)
    assert fits(adopt, message_sizes.from_server(SIZES, 2)[Kind.ADOPT])


def test_discriminators_fit() -> None:
    states = {n: worker(BATCH).discriminator.state() for n in range(1, 6)}
    parcel = Message(DISCRIMINATORS, 5, tensors=of_workers(states))
    assert fits(parcel, message_sizes.between_hosts(SIZES, 5)[DISCRIMINATORS])


@pytest.mark.parametrize("num_workers", [1, 2, 50])
def test_batches_fit_whatever_kappa_is(num_workers: int) -> None:
    assignment = {n: (2 * n, 2 * n + 1) for n in range(num_workers)}
    generated = torch.zeros(2 * num_workers, BATCH, *SHAPE)
    sent = batches(7, Samples(generated), assignment, swap_follows=True, last=False)
    assert fits(sent, message_sizes.from_server(PAPER_SIZES, num_workers)[BATCHES])


@pytest.mark.parametrize("num_workers", [1, 2, 50])
def test_batches_for_all_fit(num_workers: int) -> None:
    settings = MDGANSettings.read({"world_size": 51, "batch_size": BATCH, "step_samples": 48})
    kappa = settings.batches.kappa_for(settings.num_workers)
    labels = torch.zeros(kappa, BATCH, dtype=torch.int64)
    sent = batches(
        *(7, Samples(torch.rand(kappa, BATCH, *SHAPE), labels), assign(range(num_workers), kappa)),
        swap_follows=True,
        last=False,
        codec=image_codec(settings),
        train_on_all=settings.batches.trains_on_all,
    )
    assert fits(sent, message_sizes.from_server(SIZES, num_workers)[BATCHES])


@pytest.mark.parametrize("num_workers", [1, 40])
@pytest.mark.parametrize("codec", ["fp32", "int8", "topk:0.5"])
def test_models_of_a_federated_round_fit(num_workers: int, codec: str) -> None:
    settings = FederatedSettings.read({"wire_models": codec})
    sizes = registry.algorithm(settings.algorithm).build().message_sizes(settings, MODELS)
    vector = ModelVector(generator(), model())
    form = update_form(settings, vector.shape)
    workers = range(10**6, 10**6 + num_workers)
    answers = {worker: vector.read() for worker in workers}
    losses = {worker: torch.zeros(2) for worker in workers}
    singly = {worker: worker for worker in workers}
    update = pack_answers(10**12, answers, losses, singly, form)
    assert fits(update, message_sizes.from_host(sizes, num_workers)[UPDATE])
    tasks = [ClientTask(worker, Load(10**9, 10**6), 1 / 3) for worker in workers]
    asked = order(10**12, vector.read(), [tasks])
    assert fits(asked, message_sizes.from_server(sizes, num_workers)[ROUND])


def test_what_only_the_other_side_sends_is_not_accepted() -> None:
    host, server = message_sizes.from_host(SIZES, 1), message_sizes.from_server(SIZES, 1)
    assert not host.keys() & server.keys()
    assert list(message_sizes.between_hosts(SIZES, 1)) == [DISCRIMINATORS]
    never = {Kind.HELLO, Kind.WELCOME, Kind.LAIDOUT, Kind.GENERATOR, Kind.SCORES}
    assert not never & {*host, *server}


def test_clients_of_a_round_fit_and_not_all_clients_there_are() -> None:
    flags = {"algorithm": "fl-gan", "clients": 10_000, "participation": 0.01, "world_size": 3}
    settings = FederatedSettings.read(flags)
    sizes = registry.algorithm(settings.algorithm).build().message_sizes(settings, MODELS)
    client = ClientReport(10_000, 63, 123456.123456, 0.1234567890123456, (0.123456789012345,) * 2)
    offer = ["A processor's name" * 5] * 64
    account = report_message(10**12, HostReport([client] * 100, offer))
    most = message_sizes.from_host(sizes, 1)[TRAINED]
    assert fits(account, most)
    assert most.head_bytes < 100 << 10


def test_spans_fit_as_many_as_a_host_tells_at_once() -> None:
    spans = [["local step and more", 10**5, 10**9, 10**9, 10**9]] * MOST_SPANS
    rows = [{"iteration": 10**6, "start": 123456.123456, "spans": spans}]
    moved = dict.fromkeys(map(str, Kind), 10**12)
    told = messages.spans(10**6, rows, moved, moved, 10**12)
    assert fits(told, message_sizes.from_host(SIZES, 1)[Kind.SPANS])


def test_no_host_decides_how_much_json_the_server_reads() -> None:
    for kind, most in message_sizes.from_host(SIZES, 4).items():
        assert most.head_bytes <= 1 << 20, kind


@pytest.mark.parametrize("num_hosts", [3, 10, 100])
def test_shares_of_masks_fit(num_hosts: int) -> None:
    """Those of twice as many hosts as the run began with, for two workers in sums of their own."""
    for family in ("mdgan", "fl-gan"):
        values = {"algorithm": family, "world_size": num_hosts + 1, "secure_aggregation": True}
        settings = registry.read_settings([{**values, "batch_size": BATCH}])
        sizes = registry.algorithm(family).build().message_sizes(settings, MODELS)
        most, kind = 2 * num_hosts, FEEDBACK if family == "mdgan" else UPDATE
        bundle = torch.zeros(most - 1, 32 * most + SEAL_BYTES, dtype=torch.uint8)
        total = torch.zeros(BATCH * math.prod(SHAPE) + 2, dtype=torch.int64)
        answer = {f"masked.{n}": total for n in (0, 1)} | {f"shares.{n}": bundle for n in (0, 1)}
        assert fits(Message(kind, 1, {}, answer), message_sizes.from_host(sizes, 2)[kind])
        codes = torch.zeros(most - 1, CODE_BYTES, dtype=torch.uint8)
        asked = as_fields(Survivors(1, {n: [*range(most)] for n in (0, 1)}))
        passed = {f"shares.{n}": bundle for n in (0, 1)} | {f"codes.{n}": codes for n in (0, 1)}
        order = Message(Kind.UNMASK, 1, asked, passed)
        assert fits(order, message_sizes.from_server(sizes, 2)[Kind.UNMASK])
