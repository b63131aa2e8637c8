"""Replicas with averaged gradients train as one process does."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.families.data_parallel.replica import (
    BUFFERS,
    DISCRIMINATOR,
    GENERATOR,
    ReferenceReplica,
    Replica,
    reductions,
)
from mdgan.gan.randomness import generator_for
from mdgan.gan.weighted_mean import average
from tests.unit.families.data_parallel.replicas import (
    PLAIN,
    B,
    all_values,
    make_gan,
    make_reference,
    make_replica,
    plain_discriminator,
    plain_generator,
)
from tests.unit.gan import small


def iterate(
    reference: ReferenceReplica,
    replicas: Mapping[int, Replica],
    sizes: Mapping[int, int],
    local_steps: int = 1,
) -> None:
    """One iteration, without a network between the replicas."""
    weights = {n: size / sum(sizes.values()) for n, size in sizes.items()}
    changed: tuple[str, ...] = (GENERATOR, DISCRIMINATOR, BUFFERS)
    for reduction in reductions(local_steps):
        found: dict[int, Tensor] = {}
        for rank, replica in replicas.items():
            replica.take_over({name: reference.weights(name) for name in changed})
            found[rank], losses = replica.gradients(reduction, sizes[rank])
            assert losses[0] > 0
            assert (losses[1] > 0) == reduction.last
        reference.put(reduction, average(found, [], weights))
        reference.step(reduction)
        changed = (DISCRIMINATOR,)


@pytest.mark.parametrize("local_steps", [1, 2])
def test_one_replica_is_a_local_gan_bit_for_bit(local_steps: int) -> None:
    gan, reference = make_gan(1, local_steps=local_steps), make_reference()
    replicas = {1: make_replica(1)}
    for _ in range(4):
        gan.step()
        iterate(reference, replicas, {1: B}, local_steps)
    ours = all_values(reference.models)
    assert torch.equal(ours, all_values([gan.generator, gan.discriminator]))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


def plain_loop(sizes: Mapping[int, int], iterations: int) -> Tensor:
    """One big batch of all workers' samples, with torch alone."""
    generator, discriminator = plain_generator(), plain_discriminator()
    steps = [small.adam(generator), small.adam(discriminator)]
    noise = {n: generator_for(0, "noise", n) for n in sizes}
    real = {n: small.RealData(n) for n in sizes}
    for _ in range(iterations):
        z = {n: torch.randn(2 * b, small.Z_DIM, generator=noise[n]) for n, b in sizes.items()}
        judged = generator(torch.cat([z[n][:b] for n, b in sizes.items()]))
        fake = generator(torch.cat([z[n][b:] for n, b in sizes.items()])).detach()
        samples = torch.cat([real[n].next_batch(b).images for n, b in sizes.items()])
        loss = (F.softplus(-discriminator(samples)) + F.softplus(discriminator(fake))).mean()
        step(discriminator, steps[1], loss)
        step(generator, steps[0], F.softplus(-discriminator(judged)).mean())
    return all_values([generator, discriminator])


@pytest.mark.parametrize("sizes", [{1: B, 2: B, 3: B}, {1: 4, 2: 3, 3: 3}], ids=["equal", "dealt"])
def test_replicas_equal_one_big_batch(sizes: dict[int, int]) -> None:
    reference = make_reference(PLAIN)
    replicas = {rank: make_replica(rank, PLAIN) for rank in sizes}
    for _ in range(4):
        iterate(reference, replicas, sizes)
    assert torch.allclose(all_values(reference.models), plain_loop(sizes, 4), rtol=0, atol=1e-6)


def test_buffers_are_averaged() -> None:
    reference, replicas = make_reference(), {n: make_replica(n) for n in (1, 2)}
    gans = [make_gan(rank) for rank in replicas]
    for gan in gans:
        gan.step()
    alone = [list(gan.generator.buffers()) for gan in gans]
    iterate(reference, replicas, {1: B, 2: B})
    for ours, first, second in zip(reference.models[GENERATOR].buffers(), *alone, strict=True):
        assert torch.allclose(ours.double(), (first.double() + second.double()) / 2, atol=1e-7)
        assert ours.dtype == first.dtype


def test_a_replica_goes_on_from_its_state() -> None:
    reference, kept = make_reference(), make_replica(1)
    iterate(reference, {1: kept}, {1: B})
    saved, of_reference = kept.state(), reference.state()
    assert not any("model" in name or "weight" in name for name in saved)
    iterate(reference, {1: kept}, {1: B})

    again, resumed = make_reference(), make_replica(1)
    again.load_state(of_reference)
    assert resumed.load_state(saved)
    iterate(again, {1: resumed}, {1: B})
    assert torch.equal(all_values(again.models), all_values(reference.models))


@pytest.mark.parametrize("name", ["generator.0.weight", "images", "worker.random.gpu"])
def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    replica = make_replica(1)
    state = replica.state()
    with pytest.raises((KeyError, RuntimeError)):
        replica.load_state({**state, name: torch.zeros(3)})
    assert replica.state().keys() == state.keys()
