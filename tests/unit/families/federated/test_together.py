"""Clients that train at once find what clients one after another find, but for rounding."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from mdgan.data.shard import Shard
from mdgan.families.federated.build import make_client
from mdgan.families.federated.fl_gan import Client
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.together import LEAST_AT_ONCE, MOST_AT_ONCE, Together
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


def make_clients(settings: FederatedSettings) -> list[Client]:
    models = Models("a test", SHAPE, Z_DIM, generator, discriminator)
    shards = {
        rank: Shard(SOURCE, torch.arange(SHARD_SIZE) + rank, generator_for(0, "shard", rank))
        for rank in (1, 2, 3)
    }
    return [make_client(rank, settings, models, own, CPU, 4) for rank, own in shards.items()]


def trained(settings: FederatedSettings) -> list[Tensor]:
    clients = make_clients(settings)
    found = Together(settings).train(clients, clients[0].vector.read(), LOAD, 4)
    return [part for pair in found for part in pair]


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
        {"generator_clip_norm": 1.0},
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


def groups_of(loads: dict[int, Load], *, on: bool = True) -> Sequence[Sequence[int]]:
    settings = FederatedSettings.read({"client_state": "fresh", "vectorize": on})
    return Together(settings).groups(loads, lambda client: 3 if client % 10 == 2 else 100)


def test_clients_of_equal_loads_are_in_one_group() -> None:
    """A client with less than a batch is not like the others; few clients train singly."""
    loads = {client: Load(4 + client % 2, BATCH_SIZE) for client in range(30, 10, -1)}
    even, odd = [30, 28, 26, 24, 20, 18, 16, 14], [29, 27, 25, 23, 21, 19, 17, 15, 13, 11]
    assert groups_of(loads) == [even, odd, [22], [12]]
    assert groups_of(loads, on=False) == [[client] for client in loads]
    assert groups_of(dict.fromkeys(range(3, 3 + LEAST_AT_ONCE - 1), LOAD)) == [
        [client] for client in range(3, 3 + LEAST_AT_ONCE - 1)
    ]


def test_groups_are_of_nearly_equal_sizes() -> None:
    groups = groups_of({10 * client: LOAD for client in range(1, 2 * MOST_AT_ONCE + 2)})
    assert sorted(map(len, groups)) == [21, 22, 22]
