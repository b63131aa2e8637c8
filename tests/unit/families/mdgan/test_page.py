"""The page of MD-GAN beside a loop that is written from the paper, and shares no code with it.

Both get the same first networks, noise z, batches of real samples, seeds of dropout's masks, and
pairs that swap.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.gan.randomness import generator_for
from tests.claims.registry import claim
from tests.unit.engine.learners import make_shard
from tests.unit.engine.played import weights
from tests.unit.families.mdgan.stage import Stage
from tests.unit.gan import small

MakeStage = Callable[..., Stage]

ITERATIONS = 9


class Player:
    """A network, its Adam, and what dropout draws from."""

    def __init__(self, model: nn.Module, seed: int) -> None:
        self.model = model
        self.adam = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=True)
        torch.manual_seed(seed)
        self._random = torch.get_rng_state()

    @contextmanager
    def draws(self) -> Iterator[None]:
        torch.set_rng_state(self._random)
        yield
        self._random = torch.get_rng_state()


def judged(logits: Tensor, *, as_real: bool) -> Tensor:
    """Binary cross-entropy."""
    return F.softplus(-logits if as_real else logits).mean()


def md_gan(
    num_workers: int,
    kappa: int,
    local_steps: int,
    noise: torch.Generator,
    real: Mapping[int, Any],
    moves: Mapping[int, Sequence[tuple[int, int]]],
) -> tuple[nn.Module, list[nn.Module]]:
    """Algorithm 1; returns G and every D after it."""
    b, server = small.BATCH_SIZE, Player(small.make_generator(), 1000)
    workers = {n: Player(small.make_model(), n + 2000) for n in range(1, num_workers + 1)}
    for i in range(1, ITERATIONS + 1):
        with server.draws():
            x = server.model(torch.randn(kappa * b, small.Z_DIM, generator=noise))
        batches = x.detach().split(b)
        feedback = torch.zeros(kappa, b, *small.SHAPE)
        for n, worker in workers.items():
            x_g, x_d = batches[(n - 1) % kappa], batches[n % kappa]
            with worker.draws():
                for _ in range(local_steps):
                    worker.adam.zero_grad()
                    x_r = real[n].next_batch(b).images
                    torch.autograd.backward(judged(worker.model(x_r), as_real=True))
                    torch.autograd.backward(judged(worker.model(x_d), as_real=False))
                    worker.adam.step()
                x_g = x_g.clone().requires_grad_()
                loss = judged(worker.model(x_g), as_real=True)
                feedback[(n - 1) % kappa] += torch.autograd.grad(loss, x_g)[0] / num_workers
        server.adam.zero_grad()
        x.backward(feedback.flatten(0, 1))
        server.adam.step()
        models, adams = (
            {n: deepcopy(each.model.state_dict()) for n, each in workers.items()},
            {n: deepcopy(each.adam.state_dict()) for n, each in workers.items()},
        )
        for giver, taker in moves.get(i, ()):
            workers[taker].model.load_state_dict(models[giver])
            workers[taker].adam.load_state_dict(adams[giver])
    return server.model, [each.model for each in workers.values()]


def output(model: nn.Module, values: Tensor) -> Tensor:
    """Without dropout; biases before BatchNorm change nothing, so their rounding does not show."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    result: Tensor = model(values)
    return result


@pytest.mark.parametrize(
    ("num_workers", "kappa", "local_steps", "swap_interval"),
    [(1, 2, 1, 0), (1, 2, 3, 0), (2, 2, 1, 0), (3, 2, 1, 2), (5, 2, 2, 3), (8, 3, 1, 1)],
)
@claim(
    "page",
    "the same bits with one worker, and with several the same outputs but for the order of sums.",
)
def test_the_page_does_what_the_paper_says(
    stage: MakeStage, num_workers: int, kappa: int, local_steps: int, swap_interval: int
) -> None:
    made = stage(
        num_workers=num_workers,
        iterations=ITERATIONS,
        local_steps=local_steps,
        swap_interval=swap_interval,
        longest_answer=0,
    )
    workers = {n: made.bring_worker(n) for n in range(1, num_workers + 1)}
    made.host(workers)
    made.begin()
    made.finished()
    moves = {event["iteration"]: event["moves"] for event in made.events("swap")}
    assert len(moves) == (ITERATIONS - 1) // swap_interval if swap_interval else not moves
    noise, real = generator_for(0, "noise"), {n: make_shard(n) for n in workers}
    generator, discriminators = md_gan(num_workers, kappa, local_steps, noise, real, moves)
    results = [worker.discriminator.model for worker in workers.values()]
    if num_workers == 1:
        assert small.same_bits(weights(made.learner.model), weights(generator))
        assert small.same_bits(weights(results[0]), weights(discriminators[0]))
    z = torch.randn(100, small.Z_DIM, generator=noise)
    images = output(generator, z)  # sums of more than two are in another order here
    torch.testing.assert_close(output(made.learner.model, z), images, rtol=1e-4, atol=1e-5)
    for one, other in zip(results, discriminators, strict=True):
        torch.testing.assert_close(output(one, images), output(other, images), rtol=1e-4, atol=1e-5)
