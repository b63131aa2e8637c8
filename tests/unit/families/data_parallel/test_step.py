"""The step as the page has it, against a plain loop over N copies that shares no code with it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.gan.randomness import RandomState, generator_for
from tests.unit.families.data_parallel.replicas import (
    Networks,
    all_values,
    iterate,
    make_reference,
    make_replica,
)
from tests.unit.gan.small import CPU, SHAPE, Z_DIM

ITERATIONS = 5
TOLERANCE = 2e-7  # of means of several workers, which the page rounds to multiples of 2⁻⁴⁴


def generator() -> nn.Sequential:
    """Without a bias before BatchNorm: its gradient is rounding alone, which Adam enlarges."""
    with RandomState(5, CPU).in_place():
        layers = (
            nn.Linear(Z_DIM, 12, bias=False),
            nn.BatchNorm1d(12),
            nn.LeakyReLU(0.2),
            nn.Linear(12, 16),
        )
    return nn.Sequential(*layers, nn.Tanh(), nn.Unflatten(1, SHAPE))


def discriminator() -> nn.Sequential:
    with RandomState(6, CPU).in_place():
        layers = (
            nn.Linear(16, 10, bias=False),
            nn.BatchNorm1d(10),
            nn.LeakyReLU(0.2),
            nn.Linear(10, 1),
        )
    return nn.Sequential(nn.Flatten(), *layers)


class Trained:
    """One network, N copies of it, and the optimizer that steps it with their mean gradient."""

    def __init__(self, model: nn.Module, shares: Sequence[float]) -> None:
        self.model, self._shares = model, shares
        self._adam = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=True)
        self.copies = [deepcopy(model) for _ in shares]

    def step(self, gradients: Sequence[Sequence[Tensor]]) -> None:
        parameters = self.model.parameters()
        for parameter, *found in zip(parameters, *gradients, strict=True):
            parameter.grad = self._mean(found)
        self._adam.step()
        with torch.no_grad():
            for copy in self.copies:
                for own, new in zip(copy.parameters(), self.model.parameters(), strict=True):
                    own.copy_(new)

    def average_buffers(self) -> None:
        buffers = self.model.buffers(), *(copy.buffers() for copy in self.copies)
        for buffer, *found in zip(*buffers, strict=True):
            buffer.copy_(self._mean(found))
        self.copies = [deepcopy(self.model) for _ in self.copies]

    def _mean(self, result: Sequence[Tensor]) -> Tensor:
        total = sum(p * own.double() for p, own in zip(self._shares, result, strict=True))
        assert isinstance(total, Tensor)
        return (total.round() if result[0].dtype == torch.int64 else total).to(result[0].dtype)


def plain_loop(sizes: Mapping[int, BatchSizes], lag: int, local_steps: int) -> Tensor:
    """ParaGAN, figure 5: on the left without a lag, on the right with one."""
    total = sum(b for b, _ in sizes.values())
    shares = [b / total for b, _ in sizes.values()]
    g, d = Trained(generator(), shares), Trained(discriminator(), shares)
    noise = [generator_for(0, "noise", n) for n in sizes]
    data = [generator_for(n, "real") for n in sizes]
    buffer: list[list[Tensor]] = [[] for _ in sizes]

    def of_discriminator() -> list[list[Tensor]]:
        gradients = []
        for n, (b, _) in enumerate(sizes.values()):
            copy = d.copies[n]
            real = torch.randn(b, *SHAPE, generator=data[n]).tanh()
            on_real = torch.autograd.grad(F.softplus(-copy(real)).mean(), [*copy.parameters()])
            on_fake = torch.autograd.grad(F.softplus(copy(fake[n])).mean(), [*copy.parameters()])
            gradients.append([r + f for r, f in zip(on_real, on_fake, strict=True)])
        return gradients

    def of_generator() -> list[Sequence[Tensor]]:
        losses = [F.softplus(-copy(x)).mean() for copy, x in zip(d.copies, judged, strict=True)]
        weights = [[*copy.parameters()] for copy in g.copies]
        return [torch.autograd.grad(*pair) for pair in zip(losses, weights, strict=True)]

    for _ in range(ITERATIONS):
        judged, fake = [], []
        for n, (b, more) in enumerate(sizes.values()):
            made = g.copies[n](torch.randn(more + b, Z_DIM, generator=noise[n]))
            judged.append(made[:more])
            buffer[n] = [*buffer[n], made[more:].detach()][-lag - 1 :]
            fake.append(buffer[n][0])
        if lag:
            both = of_discriminator(), of_generator()
            d.step(both[0])
            g.step(both[1])
        else:
            for _ in range(local_steps):
                d.step(of_discriminator())
            g.step(of_generator())
        g.average_buffers()
        d.average_buffers()
    return all_values([g.model, d.model])


def trained(sizes: Mapping[int, BatchSizes], lag: int, local_steps: int) -> Tensor:
    """The same by the page."""
    networks = Networks(generator, discriminator)
    reference = make_reference(networks)
    replicas = {n: make_replica(n, networks) for n in sizes}
    for _ in range(ITERATIONS):
        iterate(reference, replicas, sizes, local_steps, lag)
    return all_values(reference.models)


SCHEMES = pytest.mark.parametrize(("lag", "local_steps"), [(0, 1), (0, 3), (1, 1), (2, 1)])
SHARED = {1: BatchSizes(4, 4), 2: BatchSizes(3, 3), 3: BatchSizes(3, 3)}
OWN = dict.fromkeys((1, 2, 3), BatchSizes(4, 8))


@SCHEMES
def test_one_worker_is_the_plain_loop_bit_for_bit(lag: int, local_steps: int) -> None:
    for sizes in ({1: BatchSizes(5, 5)}, {1: BatchSizes(4, 8)}):
        assert torch.equal(trained(sizes, lag, local_steps), plain_loop(sizes, lag, local_steps))


@SCHEMES
@pytest.mark.parametrize("sizes", [SHARED, OWN], ids=["shared out", "own"])
def test_several_workers_are_the_plain_loop(
    sizes: Mapping[int, BatchSizes], lag: int, local_steps: int
) -> None:
    result, expected = trained(sizes, lag, local_steps), plain_loop(sizes, lag, local_steps)
    assert torch.allclose(result, expected, rtol=0, atol=TOLERANCE)
