"""Workers with a real shard whose states become bytes, and how they train and swap."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from mdgan.data.partitioner import InMemoryPartitioner
from mdgan.data.shard import Shard
from mdgan.families.mdgan.algorithm import GeneratorLearner, assign
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator_learner import DiscriminatorLearner
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.model_state import load_moments, optimizer_tensors
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import make_optimizer, weights_replaced
from mdgan.gan.randomness import RandomState, generator_for
from tests.unit.gan import small
from tests.unit.gan.small import (
    CPU,
    Z_DIM,
    adam,
    all_bits,
    equal_bits,
    images,
    make_generator,
    make_learner,
)

SHARD_SIZE = 12


class Images(InMemoryPartitioner):
    """Forty images, no two alike."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        return images(77, 40), torch.zeros(40, dtype=torch.int64)


SOURCE = Images(Path())


def make_worker(rank: int, *, shard_size: int = SHARD_SIZE, **how: Any) -> Worker:
    """All workers begin with the same model."""
    shard = Shard(SOURCE, torch.arange(shard_size) + rank, generator_for(0, "shard", rank))
    return small.make_worker(rank, **{"model_seed": 0, **how}, data=shard)


def through_bytes(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return load(save(state))


def make_standalone(
    worker: DiscriminatorLearner,
    kappa: int = 2,
    *stream: int,
    generator: nn.Module | None = None,
    policy: Policy | None = None,
) -> LocalGAN:
    """What a worker trains together with its own generator, with the noise of a stream."""
    model = make_generator() if generator is None else generator
    return LocalGAN(
        Generator(
            model,
            adam(model) if policy is None else make_optimizer(model, policy),
            z_dim=Z_DIM,
            noise=generator_for(0, "noise", *stream),
            random_state=RandomState(1000 + sum(stream), CPU),
            policy=policy,
        ),
        worker,
        kappa,
    )


def swap(first: Worker, second: Worker) -> None:
    """As over a link."""
    for worker in (first, second):
        worker.undo_real_half()  # as hosts do before they give a discriminator away
    states = [through_bytes(w.discriminator.moving()) for w in (second, first)]
    for worker, state in zip((first, second), states, strict=True):
        worker.take(state)


def model_and_optimizer(worker: Worker) -> tuple[nn.Module, torch.optim.Optimizer]:
    return worker.discriminator.model, worker.discriminator.optimizer


def bits_of(worker: Worker) -> list[Tensor]:
    return all_bits(*model_and_optimizer(worker))


class Run:
    """A server and two workers, called as the roles call them.

    Args:
        make: makes a worker by its rank.
        learner: makes the server's share.
        swaps: after which iterations the workers swap.
        early: whether real halves are learnt as soon as workers have answered.
    """

    def __init__(
        self,
        make: Callable[[int], Worker],
        learner: Callable[[], GeneratorLearner] = make_learner,
        kappa: int = 2,
        swaps: Collection[int] = (),
        early: bool = False,
    ) -> None:
        self._how = (make, learner, kappa, swaps, early)
        self._kappa, self._swaps, self._early = kappa, swaps, early
        self.learner = learner()
        self.workers = {n: make(n) for n in (1, 2)}
        self.losses: list[Tensor] = []

    def iterate(self, i: int) -> None:
        generated = self.learner.generate(self._kappa)
        assignment = assign([*self.workers], self._kappa)
        gradient = torch.zeros_like(generated.images)
        for n, worker in self.workers.items():
            worker.discriminator.at(i)
            self.losses.append(worker.learn(generated[assignment[n].train]))
            feedback, loss, _ = worker.feedback(generated[assignment[n].judge])
            gradient[assignment[n].judge] += feedback / len(self.workers)
            self.losses.append(loss)
            if self._early:
                worker.learn_real_half()
        self.learner.backward(gradient)
        self.learner.at(i)
        self.learner.step()
        if i in self._swaps:
            swap(*self.workers.values())

    def learn_real_halves(self) -> None:
        for worker in self.workers.values():
            worker.learn_real_half()

    def resumed(self) -> "Run":
        """A run built anew that goes on from this one's bytes."""
        other = Run(*self._how)
        other.learner.load_state(through_bytes(self.learner.state()))
        for n, worker in other.workers.items():
            assert worker.load_state(through_bytes(self.workers[n].state()))
        other.losses = list(self.losses)
        return other

    def bits(self) -> list[Tensor]:
        """Everything, without real halves that are learnt already."""
        bits = all_bits(self.learner.model, self.learner.optimizer)
        for worker in self.workers.values():
            worker.undo_real_half()
            bits += bits_of(worker)
            bits += [tensor for _, tensor in sorted(worker.state().items())]
        return bits + self.losses


def assert_swapping_exchanges_shards(
    make: Callable[[int], Worker],
    draw: Callable[[int], Samples] = lambda seed: Samples(images(seed)),
    *,
    moves_moments: bool = True,
) -> None:
    """Workers that swap after the third iteration equal those whose shards are exchanged.

    So are the moments, where they do not move.
    """
    swapped, stayed = ([make(n) for n in (1, 2)] for _ in range(2))
    for worker in swapped:
        worker.discriminator.moves_moments = moves_moments
    for i in range(1, 9):
        for workers in (swapped, stayed):
            # Who has which shard now gets the batch of that shard.
            shards: Sequence[Worker] = workers[::-1] if workers is stayed and i > 3 else workers
            for place, worker in enumerate(shards):
                worker.discriminator.at(i)
                worker.learn(draw(10 * i + place))
                worker.feedback(draw(10 * i + place + 5))
        if i == 3:
            swap(*swapped)
            if not moves_moments:
                tensors_before = [optimizer_tensors(*model_and_optimizer(w)) for w in stayed]
                for worker, moments in zip(stayed, reversed(tensors_before), strict=True):
                    load_moments(*model_and_optimizer(worker), moments)
                    weights_replaced(worker.discriminator.optimizer)
            for part in ("batches", "random_state", "regularizers"):
                parts = [getattr(worker, part) for worker in stayed]
                for worker, other in zip(stayed, reversed(parts), strict=True):
                    setattr(worker, part, other)
    bits = [[bits_of(w) for w in workers] for workers in (swapped, stayed[::-1])]
    assert all(equal_bits(*pair) for pair in zip(*bits, strict=True))
    assert not equal_bits(bits[0][0], bits[0][1])
