"""Clients that train at once find what clients one after another find, but for rounding."""

import pytest
import torch
from torch import Tensor, nn

from mdgan.data.shard import Shard
from mdgan.families.federated.build import make_client
from mdgan.families.federated.fl_gan import LEAST_AT_ONCE, MOST_AT_ONCE, Client, LocalTraining
from mdgan.families.federated.messages import ClientTask
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Load
from mdgan.gan.build import Models
from mdgan.gan.randomness import generator_for
from tests.unit.gan import small
from tests.unit.gan.small import BATCH_SIZE, CPU, SHAPE, Z_DIM
from tests.unit.gan.stateful import SHARD_SIZE, SOURCE

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
    found = training.train(tasks, clients[1].vector.read(), 4)
    return [part for group in found for _, sent, losses in group for part in (sent, losses)]


def both(more: dict[str, object]) -> list[list[Tensor]]:
    given = {"client_state": "fresh", "batch_size": BATCH_SIZE, **more}
    ways = [FederatedSettings.read({**given, "vectorize": at_once}) for at_once in (False, True)]
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
