"""Replicas of small networks, and a plain loop that they are compared with."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mdgan.engine.parts import HostPart, ServerPart
from mdgan.engine.settings import RunSettings
from mdgan.families.data_parallel.host import DataParallelHost
from mdgan.families.data_parallel.replica import ReferenceReplica, Replica
from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.families.data_parallel.server import DataParallelServer
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.data_parallel.step import Reduction, reductions
from mdgan.families.data_parallel.vectors import ALL, DISCRIMINATOR, GENERATOR
from mdgan.gan.discriminator_learner import unobserved
from mdgan.gan.exact_sum import average
from mdgan.gan.labels import Samples
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.randomness import RandomState
from mdgan.observe.tracer import Tracer
from tests.unit.engine.stage import Stage
from tests.unit.gan import conditional, small
from tests.unit.gan.stateful import make_standalone

B = small.BATCH_SIZE
POLICY = Policy(learning_rate=2e-3)
Make = Callable[[], nn.Module]


def plain_generator() -> nn.Module:
    """Without BatchNorm and dropout, so that the samples of a batch do not meet."""
    with RandomState(0, small.CPU).in_place():
        layers = nn.Linear(small.Z_DIM, 12), nn.Tanh(), nn.Linear(12, 16), nn.Tanh()
        return nn.Sequential(*layers, nn.Unflatten(1, small.SHAPE))


def plain_discriminator() -> nn.Module:
    with RandomState(1, small.CPU).in_place():
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.Tanh(), nn.Linear(10, 1))


class _LabelledData(small.RealData):
    """Real samples with their classes."""

    def next_batch(self, batch_size: int) -> Samples:
        samples = super().next_batch(batch_size)
        return Samples(samples.images, torch.arange(batch_size) % conditional.NUM_CLASSES)


class Networks(NamedTuple):
    """What makes the two networks."""

    generator: Make = small.make_generator
    discriminator: Make = small.make_model


FULL = Networks()
PLAIN = Networks(plain_generator, plain_discriminator)
CONDITIONAL = Networks(
    partial(conditional.make, conditional.ConditionalGenerator, 2),
    partial(conditional.make, conditional.Projection, 3),
)


def make_gan(
    rank: int, networks: Networks = FULL, local_steps: int = 1, kappa: int = 2
) -> LocalGAN:
    """A local GAN with the data and random numbers of a rank."""
    discriminator, data = networks.discriminator(), _LabelledData(rank)
    learner = small.make_worker(rank, model=discriminator, data=data, local_steps=local_steps)
    return make_standalone(learner, kappa, rank, generator=networks.generator())


def make_replica(rank: int, networks: Networks = FULL) -> Replica:
    return Replica(make_gan(rank, networks), small.SHAPE)


def make_reference(networks: Networks = FULL) -> ReferenceReplica:
    models = {GENERATOR: networks.generator(), DISCRIMINATOR: networks.discriminator()}
    return ReferenceReplica(models, {GENERATOR: POLICY, DISCRIMINATOR: POLICY})


def all_values(models: Mapping[str, nn.Module] | Sequence[nn.Module]) -> Tensor:
    """Weights and buffers of some models, as one row."""
    networks = models.values() if isinstance(models, Mapping) else models
    tensors = [t for model in networks for t in model.state_dict().values()]
    return torch.cat([t.detach().double().reshape(-1) for t in tensors])


def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step of one network alone."""
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


def iterate(
    reference: ReferenceReplica,
    replicas: Mapping[int, Replica],
    sizes: Mapping[int, BatchSizes],
    local_steps: int = 1,
    lag: int = 0,
) -> None:
    """One iteration, without a network between the replicas."""
    total = sum(size.discriminator for size in sizes.values())
    weights = {n: size.discriminator / total for n, size in sizes.items()}
    changed: Collection[str] = ALL

    def find_mean(reduction: Reduction) -> Tensor:
        nonlocal changed
        averaged: dict[int, Tensor] = {}
        for rank, replica in replicas.items():
            replica.take_over({name: reference.weights(name) for name in changed})
            losses = replica.learn(reduction, sizes[rank], lag)
            averaged[rank] = replica.vector(reduction).read()
            assert losses[0] > 0
            assert (losses[1] > 0) == reduction.last
        changed = reduction.changed
        return average(averaged, [], weights)

    assert reference.iterate(reductions(lag, local_steps), find_mean, unobserved)


class ReplicaStage(Stage):
    """A stage on which ParaGAN is trained, with real hosts or played ones."""

    def make_settings(self, values: Mapping[str, Any]) -> RunSettings:
        return DataParallelSettings.read({"generator_lr": 2e-3, "discriminator_lr": 2e-3, **values})

    def bring(self) -> ServerPart:
        assert isinstance(self.settings, DataParallelSettings)
        self.reference = make_reference()
        return DataParallelServer(self.reference, self.settings)

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer) -> HostPart:
        return DataParallelHost(workers, small.CPU, tracer)
