"""The baseline against a plain loop that shares no code with it: the same bits."""

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.families.contract import ServerNeeds
from mdgan.families.standalone.server import BUILDER
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.gan.discriminator_learner import unobserved
from mdgan.gan.randomness import derive_seed, generator_for

SEED, B, ITERATIONS = 3, 10, 6
G_RATE, D_RATE = 5e-4, 1e-3
DIGITS = load("digits", None)
"""Its generator has BatchNorm, and its discriminator dropout."""


def shard() -> Shard:
    return Shard(DIGITS.open(Path()), torch.arange(55), generator_for(SEED, "shard", 1))


def adam(model: nn.Module, rate: float) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=rate, betas=(0.5, 0.999), fused=True)


def plain_loop(g: nn.Module, d: nn.Module, kappa: int, local_steps: int) -> list[Tensor]:
    """Goodfellow et al. 2014, Algorithm 1; of two batches G learns from one, and D from the other.

    Returns:
        J_disc and J_gen of each iteration.
    """
    step_g, step_d = adam(g, G_RATE), adam(d, D_RATE)
    noise, data, losses = generator_for(SEED, "noise"), shard(), []
    torch.manual_seed(derive_seed(SEED, "worker", 1))  # for the dropout of D
    for _ in range(ITERATIONS):
        samples = g(torch.randn(kappa * B, DIGITS.models.z_dim, generator=noise))
        judged, fake = samples[:B], samples[-B:].detach()  # with κ = 1 they are the same
        for _ in range(local_steps):
            step_d.zero_grad()
            on_real = F.softplus(-d(data.next_batch(B).images)).mean()
            on_fake = F.softplus(d(fake)).mean()
            (on_real + on_fake).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            step_d.step()
        loss = F.softplus(-d(judged)).mean()
        gradients = torch.autograd.grad(loss, [*g.parameters()])
        for weight, gradient in zip(g.parameters(), gradients, strict=True):
            weight.grad = gradient
        step_g.step()
        losses += [on_real + on_fake, loss]
    return [value.detach() for value in losses]


@pytest.mark.parametrize(("kappa", "local_steps"), [(2, 1), (2, 3), (1, 2)])
def test_the_baseline_is_a_plain_loop_bit_for_bit(kappa: int, local_steps: int) -> None:
    values = {"generator_optimizer": f"lr={G_RATE}", "discriminator_optimizer": f"lr={D_RATE}"}
    changes = {"seed": SEED, "batch_size": B, "kappa": kappa, "local_steps": local_steps}
    settings = StandaloneSettings.read({**values, **changes, "world_size": 2})
    part = BUILDER.server(ServerNeeds(settings, DIGITS.models, torch.device("cpu"), {1: shard()}))
    assert part.discriminator is not None
    g, d = deepcopy(part.generator), deepcopy(part.discriminator)
    engine: Any = SimpleNamespace(poll=lambda: None, at=lambda _: None, span=unobserved)
    results = [loss for i in range(ITERATIONS) for loss in part.advance(i, engine).losses[0]]
    with torch.random.fork_rng():
        expected = plain_loop(g, d, kappa, local_steps)
    assert torch.equal(torch.stack(results), torch.stack(expected))
    for ours, plain in ((part.generator, g), (part.discriminator, d)):
        for name, value in ours.state_dict().items():
            assert torch.equal(value, plain.state_dict()[name]), name
