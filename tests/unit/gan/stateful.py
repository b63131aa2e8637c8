"""Workers with a real shard, whose states go through bytes."""

from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from mdgan.data.partitioner import InMemoryPartitioner
from mdgan.data.shard import Shard
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, generator_for
from tests.unit.gan.small import BATCH_SIZE, CPU, adam, images, make_model

SHARD_SIZE = 12


class Images(InMemoryPartitioner):
    """Forty images, no two alike."""

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        return images(77, 40), torch.zeros(40, dtype=torch.int64)


SOURCE = Images(Path())


def make_worker(
    rank: int,
    *,
    local_steps: int = 1,
    shard_size: int = SHARD_SIZE,
    policy: Policy | None = None,
) -> Worker:
    model = make_model()
    optimizer = adam(model) if policy is None else make_optimizer(model, policy)
    indices = torch.arange(shard_size) + rank
    return Worker(
        Discriminator(model, optimizer, policy),
        Shard(SOURCE, indices, generator_for(0, "shard", rank)),
        RandomState(100 + rank, CPU),
        LearningRules(
            BATCH_SIZE,
            local_steps,
            DISCRIMINATOR_LOSSES["bce"],
            GENERATOR_LOSSES["non-saturating"],
        ),
    )


def through_bytes(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return load(save(state))
