"""A client trains like a standalone GAN, however rounds are cut and however many train at once."""

import pytest
import torch
from torch import Tensor, nn

from mdgan.data.shard import Shard
from mdgan.families.federated.build import make_client
from mdgan.families.federated.host import LEAST_AT_ONCE, MOST_AT_ONCE, LocalTraining
from mdgan.families.federated.messages import ClientTask, Load
from mdgan.families.federated.round import Client
from mdgan.families.federated.server import GlobalModels
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.build import Models
from mdgan.gan.exact_sum import average
from mdgan.gan.labels import Samples
from mdgan.gan.optimizer_settings import Policy, RateSchedule
from mdgan.gan.randomness import generator_for
from tests.unit.gan import small
from tests.unit.gan.small import BATCH_SIZE, CPU, SHAPE, Z_DIM, all_bits, equal_bits, same_bits
from tests.unit.gan.stateful import SHARD_SIZE, SOURCE, make_standalone, make_worker, through_bytes

E = 7


POLICIES = {
    name: Policy(name, 2e-3, clip_norm=clip, schedule=schedule)
    for name, clip, schedule in (
        ("adam", None, RateSchedule()),
        ("lamb", 1.0, RateSchedule("cosine", 3, 2 * E)),
        ("lookahead:adabelief", 1.0, RateSchedule("linear", 0, 2 * E)),
    )
}


class Trained:
    """A client or a standalone GAN, with a view of all its bits."""

    def __init__(self, policy: Policy = POLICIES["adam"]) -> None:
        self.worker = make_worker(1, policy=policy)
        self.gan = make_standalone(self.worker, 2, 1, policy=policy)
        self.client = Client(self.gan, SHARD_SIZE)

    def models(self) -> Tensor:
        return self.client.vector.read()

    def bits(self) -> list[Tensor]:
        discriminator = self.worker.discriminator
        generator = self.gan.trained
        own = all_bits(generator.model, generator.optimizer)
        return own + all_bits(discriminator.model, discriminator.optimizer)


def at_the_start() -> Tensor:
    """What the server sends first."""
    return GlobalModels(small.make_generator(), small.make_model()).vector.read()


def test_a_client_trains_what_the_server_sends_as_a_standalone_gan() -> None:
    client, alone = Trained(), Trained()
    other = GlobalModels(small.make_generator(5), small.make_model(5)).vector.read()
    models, losses = client.client.train(other, E, BATCH_SIZE)
    alone.client.vector.write(other)
    steps = [torch.stack(alone.gan.step()) for _ in range(E)]
    assert equal_bits(client.bits(), alone.bits())
    assert same_bits(models, alone.models())
    assert same_bits(losses, torch.stack(steps).mean(0))
    assert not same_bits(models, Trained().client.train(at_the_start(), E, BATCH_SIZE)[0])


def test_other_models_begin_a_lookahead_window() -> None:
    """Slow weights of the round before would pull the client back to its own model."""
    client = Trained(policy=POLICIES["lookahead:adabelief"])
    client.client.train(at_the_start(), 3, BATCH_SIZE)
    counts = []
    for models in (client.models(), at_the_start()):
        client.client.train(models, 1, BATCH_SIZE)
        counts.append(client.gan.trained.optimizer.param_groups[0]["counter"])
    assert counts == [4, 1]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_two_rounds_of_one_client_are_one_long_training(policy: Policy) -> None:
    """The rounds end within Lookahead windows, which go on in the next."""
    client, alone = Trained(policy=policy), Trained(policy=policy)
    server = GlobalModels(small.make_generator(), small.make_model())
    for last in (E, 2 * E):
        models, _ = client.client.train(server.vector.read(), E, BATCH_SIZE, last)
        server.vector.write(average({1: models}, [], {1: 1.0}))
    for i in range(1, 2 * E + 1):
        alone.gan.at(i)
        alone.gan.step()
    assert equal_bits(client.bits(), alone.bits())
    assert same_bits(server.vector.read(), alone.models())
    ours, theirs = server.generator.state_dict(), alone.gan.generator.state_dict()
    assert all(same_bits(ours[name], theirs[name]) for name in theirs)


def test_batches_become_smaller_and_larger_as_told() -> None:
    client, sizes = Trained(), []
    draw = client.worker.batches.next_batch

    def next_batch(batch_size: int) -> Samples:
        sizes.append(batch_size)
        return draw(batch_size)

    client.worker.batches.next_batch = next_batch  # type: ignore[method-assign]
    for size in (2, BATCH_SIZE, 1000):
        client.client.train(at_the_start(), 1, size)
    assert sizes == [2, BATCH_SIZE, SHARD_SIZE]


def test_the_servers_models_come_back_from_a_state() -> None:
    first = GlobalModels(small.make_generator(3), small.make_model(3))
    second = GlobalModels(small.make_generator(), small.make_model())
    kept = through_bytes(first.state_dict())
    second.load_state_dict(kept)
    assert same_bits(second.vector.read(), first.vector.read())
    with pytest.raises((KeyError, RuntimeError)):
        second.load_state_dict({name: t for name, t in kept.items() if "generator" in name})


# Clients that train at once find what clients one after another find, but for rounding.


LOAD = Load(4, BATCH_SIZE)


def generator() -> nn.Module:
    """Judges samples by the others of a batch, and keeps statistics."""
    return nn.Sequential(
        nn.Linear(Z_DIM, 16, bias=False), nn.BatchNorm1d(16), nn.Unflatten(1, SHAPE)
    )


def discriminator() -> nn.Module:
    """Draws no random numbers; every weight has a gradient beyond rounding."""
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def trained(settings: FederatedSettings) -> list[Tensor]:
    models = Models("a test", SHAPE, Z_DIM, generator, discriminator)
    clients = {
        rank: make_client(
            rank,
            settings,
            models,
            Shard(SOURCE, torch.arange(SHARD_SIZE) + rank % 3, generator_for(0, "shard", rank)),
            CPU,
            stream=(4,),
        )
        for rank in range(1, 1 + LEAST_AT_ONCE)
    }
    training = LocalTraining(settings, CPU, lambda rank, *_: clients[rank], lambda _: SHARD_SIZE)
    tasks = [ClientTask(rank, LOAD, 1.0) for rank in clients]
    result = training.train(tasks, clients[1].vector.read(), 4)
    return [part for group in result for _, sent, losses in group for part in (sent, losses)]


def both(more: dict[str, object]) -> list[list[Tensor]]:
    values = {"client_state": "fresh", "batch_size": BATCH_SIZE, **more}
    ways = [FederatedSettings.read({**values, "vectorize": at_once}) for at_once in (False, True)]
    return [trained(settings) for settings in ways]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"local_steps": 2, "kappa": 1, "r1": 1.0},
        {"generator_optimizer": "sgd", "discriminator_optimizer": "radam"},
        {
            "gradient_penalty": 1.0,
            "discriminator_loss": "wasserstein",
            "generator_loss": "wasserstein",
        },
    ],
    ids=str,
)
def test_at_once_is_one_after_another_but_for_rounding(more: dict[str, object]) -> None:
    singly, at_once = both(more)
    for alone, together in zip(singly, at_once, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert not all(torch.equal(a, b) for a, b in zip(singly, at_once, strict=True))


@pytest.mark.parametrize(
    "more",
    [
        {"discriminator_optimizer": "lamb"},
        {"generator_optimizer": "clip_norm=1"},
        {"compile": True},
        {"precision": "fp16"},
    ],
    ids=str,
)
def test_what_cannot_be_stacked_trains_one_after_another(
    more: dict[str, object], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.Module, "compile", lambda _: None)  # which takes a minute
    singly, at_once = both(more)
    assert all(small.same_bits(a, b) for a, b in zip(singly, at_once, strict=True))
    assert ["one after another" in each.message for each in caplog.records] == [True]


def groups_of(loads: dict[int, Load], *, on: bool = True) -> list[list[int]]:
    settings = FederatedSettings.read({"client_state": "fresh", "vectorize": on})

    def begin(*_: int) -> Client:
        raise AssertionError("nothing is trained")

    training = LocalTraining(settings, CPU, begin, lambda n: 3 if n % 10 == 2 else 100)
    tasks = [ClientTask(client, load, 1.0) for client, load in loads.items()]
    return [[task.client for task in group] for group in training.groups(tasks)]


def test_clients_of_equal_loads_are_in_groups_of_nearly_equal_sizes() -> None:
    """A client with less than a batch is not like the others; few clients train singly."""
    loads = {client: Load(4 + client % 2, BATCH_SIZE) for client in range(30, 10, -1)}
    even, odd = [30, 28, 26, 24, 20, 18, 16, 14], [29, 27, 25, 23, 21, 19, 17, 15, 13, 11]
    assert groups_of(loads) == [even, odd, [22], [12]]
    assert groups_of(loads, on=False) == [[client] for client in loads]
    few = range(3, 3 + LEAST_AT_ONCE - 1)
    assert groups_of(dict.fromkeys(few, LOAD)) == [[client] for client in few]
    many = groups_of({10 * client: LOAD for client in range(1, 2 * MOST_AT_ONCE + 2)})
    assert sorted(map(len, many)) == [21, 22, 22]
