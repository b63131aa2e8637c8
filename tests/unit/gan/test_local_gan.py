from itertools import pairwise

import pytest
import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation import aggregate
from mdgan.families.mdgan.algorithm import assign
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.losses import GENERATOR_LOSSES
from tests.unit.gan.small import all_bits, equal_bits, make_learner, make_worker, same_bits
from tests.unit.gan.stateful import make_standalone

ITERATIONS = 10


def run_standalone(kappa: int, local_steps: int, loss: str) -> tuple[list[Tensor], list[Tensor]]:
    """The losses of every iteration, and everything that there is in the end."""
    worker = make_worker(1, local_steps=local_steps, generator_loss=loss)
    gan = make_standalone(worker, kappa)
    losses = [loss for _ in range(ITERATIONS) for loss in gan.step()]
    discriminator = worker.discriminator
    bits = all_bits(gan.generator, gan.trained.optimizer)
    return losses, bits + all_bits(discriminator.model, discriminator.optimizer)


def run_mdgan(kappa: int, local_steps: int, loss: str) -> tuple[list[Tensor], list[Tensor]]:
    """The same of MD-GAN with one worker, called as the server and the host call it."""
    learner = make_learner()
    worker = make_worker(1, local_steps=local_steps, generator_loss=loss)
    losses: list[Tensor] = []
    worker.learn_real_half()
    for iteration in range(1, ITERATIONS + 1):
        generated = learner.generate(kappa)
        assignment = assign([1], kappa)
        discriminator_loss = worker.learn(generated[assignment[1].train])
        feedback, generator_loss, _ = worker.feedback(generated[assignment[1].judge])
        if iteration < ITERATIONS:
            worker.learn_real_half()
        learner.backward(aggregate({1: feedback}, assignment, kappa))
        learner.step()
        losses += [discriminator_loss, generator_loss]
    discriminator = worker.discriminator
    bits = all_bits(learner.model, learner.optimizer)
    return losses, bits + all_bits(discriminator.model, discriminator.optimizer)


@pytest.mark.parametrize("loss", GENERATOR_LOSSES)
@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("kappa", ["auto", 1])
def test_standalone_equals_mdgan_with_one_worker_bit_for_bit(
    kappa: int | str, local_steps: int, loss: str
) -> None:
    torch.manual_seed(1)
    alone = run_standalone(resolve_kappa(kappa, 1), local_steps, loss)
    torch.manual_seed(2)
    distributed = run_mdgan(resolve_kappa(kappa, 1), local_steps, loss)
    assert equal_bits(alone[0], distributed[0])
    assert equal_bits(alone[1], distributed[1])
    assert len(alone[0]) == 2 * ITERATIONS
    assert all(not same_bits(one, other) for one, other in pairwise(alone[0]))
