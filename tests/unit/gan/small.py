"""Small models with everything that makes bits differ: dropout, BatchNorm, Adam."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.families.mdgan.algorithm import GeneratorLearner
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Batches, LearningRules
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.gan.regularizers.contract import Regularizer, Regularizers

SHAPE = (1, 4, 4)
Z_DIM = 6
BATCH_SIZE = 5
CPU = torch.device("cpu")


def make_generator(seed: int = 0) -> nn.Sequential:
    with RandomState(seed, CPU).in_place():
        return nn.Sequential(
            nn.Linear(Z_DIM, 12),
            nn.BatchNorm1d(12),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.2),
            nn.Linear(12, 16),
            nn.Tanh(),
            nn.Unflatten(1, SHAPE),
        )


def make_model(seed: int = 0) -> nn.Sequential:
    """A discriminator's model."""
    with RandomState(seed, CPU).in_place():
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(16, 10),
            nn.BatchNorm1d(10),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(10, 1),
        )


class HalfUsed(nn.Module):
    """Some parameters get no gradient, and some must not."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(16, 1)
        self.fixed = nn.Linear(16, 16).requires_grad_(False)
        self.unused = nn.Linear(16, 1)

    def forward(self, samples: Tensor) -> Tensor:
        logits: Tensor = self.used(self.fixed(samples.flatten(1)))
        return logits


def adam(model: nn.Module, lr: float = 2e-3) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.999), fused=True)


def make_learner(
    seed: int = 0,
    policy: Policy | None = None,
    model: nn.Module | None = None,
    kind: type[GeneratorLearner] = GeneratorLearner,
) -> GeneratorLearner:
    generator = model or make_generator(seed)
    return kind(
        generator,
        adam(generator) if policy is None else make_optimizer(generator, policy),
        z_dim=Z_DIM,
        batch_size=BATCH_SIZE,
        noise=generator_for(seed, "noise"),
        random_state=RandomState(seed + 1000, CPU),
        policy=policy,
    )


class RealData:
    """A private data source: images drawn from its own stream, and counted."""

    def __init__(self, seed: int = 0) -> None:
        self.num_batches = 0
        self._random = generator_for(seed, "real")

    def next_batch(self, batch_size: int) -> Samples:
        self.num_batches += 1
        return Samples(torch.randn(batch_size, *SHAPE, generator=self._random).tanh())

    def state(self) -> dict[str, Tensor]:
        return {"generator": self._random.get_state()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        self._random.set_state(state["generator"])
        return True


def make_worker(
    seed: int = 0,
    *,
    model_seed: int | None = None,
    model: nn.Module | None = None,
    policy: Policy | None = None,
    data: Batches | None = None,
    generator_loss: str = "non-saturating",
    discriminator_loss: str = "bce",
    regularizers: Iterable[Regularizer] = (),
    **rules: Any,
) -> Worker:
    """Args: rules: those of `LearningRules` that are not usual."""
    model = model or make_model(seed if model_seed is None else model_seed)
    optimizer = adam(model) if policy is None else make_optimizer(model, policy)
    usual = LearningRules(
        BATCH_SIZE, 1, DISCRIMINATOR_LOSSES[discriminator_loss], GENERATOR_LOSSES[generator_loss]
    )
    return Worker(
        Discriminator(model, optimizer, policy),
        data or RealData(seed),
        RandomState(seed + 2000, CPU),
        replace(usual, **rules),
        Regularizers(regularizers),
    )


def images(seed: int, num: int = BATCH_SIZE) -> Tensor:
    return torch.randn(num, *SHAPE, generator=generator_for(seed, "images")).tanh()


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Equal types, shapes and bits; unlike `torch.equal`, tells −0 from 0."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    raw = (tensor.detach().reshape(-1).view(torch.uint8) for tensor in (first, second))
    return torch.equal(*raw)


def all_bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """A copy of everything that a model and its optimizer are, apart from `Discriminator.state`."""
    moments = [
        value
        for each in (optimizer, getattr(optimizer, "optimizer", None))
        if each is not None
        for parameter in model.parameters()
        for _, value in sorted(each.state.get(parameter, {}).items())
    ]
    counts = [
        torch.tensor(group.get(count, 0))
        for group in optimizer.param_groups
        for count in ("step", "counter")
    ]
    return [t.detach().clone() for t in [*model.state_dict().values(), *moments, *counts]]


def equal_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(same_bits, first, second))
