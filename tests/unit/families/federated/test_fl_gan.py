"""A client of FL-GAN trains as a standalone GAN does, however its rounds are cut."""

import pytest
import torch
from torch import Tensor

from mdgan.families.federated.fl_gan import Client, GlobalModels
from mdgan.gan.labels import Samples
from mdgan.gan.optimizer_settings import Policy, RateSchedule
from mdgan.gan.weighted_mean import average
from tests.unit.gan import small
from tests.unit.gan.small import BATCH_SIZE, all_bits, equal_bits, same_bits
from tests.unit.gan.stateful import SHARD_SIZE, make_standalone, make_worker, through_bytes

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
    second.load_state(through_bytes(first.state()))
    assert same_bits(second.vector.read(), first.vector.read())
    kept = first.state()
    first.vector.write(torch.zeros(first.vector.shape))
    assert any(tensor.any() for tensor in kept.values()), "a copy"
    with pytest.raises((KeyError, RuntimeError)):
        second.load_state({name: t for name, t in kept.items() if "generator" in name})
