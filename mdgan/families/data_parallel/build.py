"""Makes the two parts of ParaGAN."""

from collections.abc import Mapping
from math import prod

import torch

from mdgan.data.shard import Shard
from mdgan.engine.message_sizes import MessageSizes, small_bytes
from mdgan.families.contract import Builder, ClassCounts, HostNeeds, Planning
from mdgan.families.data_parallel.host import DataParallelHost
from mdgan.families.data_parallel.messages import KINDS, TRAIN
from mdgan.families.data_parallel.planning import planning
from mdgan.families.data_parallel.replica import (
    DISCRIMINATOR,
    GENERATOR,
    ReferenceReplica,
    Replica,
    weight_vectors,
)
from mdgan.families.data_parallel.server import DataParallelServer
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.gan.build import Models, build_model, make_local_gan, make_model
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.randomness import RandomState, derive_seed, generator_for

_STATE_BYTES = 1 << 20
"""Of a worker's positions in its random numbers, and of their names."""
_LABEL_BYTES = 8


class _DataParallel(Builder[DataParallelSettings]):
    def server(
        self,
        settings: DataParallelSettings,
        models: Models,
        device: torch.device,
        shards: Mapping[int, Shard],
    ) -> DataParallelServer:
        """The server's part, with both networks drawn from the seed."""
        del shards
        networks = {
            GENERATOR: make_model(models.generator, GENERATOR, settings, device),
            DISCRIMINATOR: make_model(models.discriminator, DISCRIMINATOR, settings, device),
        }
        policies = {name: settings.policy(name) for name in networks}
        return DataParallelServer(ReferenceReplica(networks, policies), settings)

    def host(self, needs: HostNeeds[DataParallelSettings]) -> DataParallelHost:
        """The part of a host, with a replica for each of its shards."""
        replicas = {rank: make_replica(rank, needs) for rank in needs.shards}
        return DataParallelHost(replicas, needs.device, needs.tracer)

    def message_sizes(self, settings: DataParallelSettings, models: Models) -> MessageSizes:
        """Weights on the way out, gradients on the way back."""
        networks = {
            GENERATOR: build_model(models.generator, 0),
            DISCRIMINATOR: build_model(models.discriminator, 0),
        }
        weights = sum(4 * prod(vector.shape) for vector in weight_vectors(networks).values())
        answers = {kind: 4 * prod(r.vector(networks).shape) for kind, r in KINDS.items()}
        return MessageSizes(
            _STATE_BYTES + settings.lag_at(1) * _buffered_bytes(settings, models),
            # A sum is float64, but stands for three workers or more.
            lambda count: {
                kind: count * (size + 64) + small_bytes(count) for kind, size in answers.items()
            },
            lambda count: {TRAIN: weights + small_bytes(count)},
        )

    def planning(
        self, settings: DataParallelSettings, models: Models, shard_size: int | None
    ) -> Planning[DataParallelSettings]:
        """What moves, in the terms of the other papers' tables."""
        del shard_size
        return planning(settings, models)

    def describe(
        self, settings: DataParallelSettings, models: Models, class_counts: ClassCounts
    ) -> list[tuple[str, str]]:
        """κ of every worker, the samples of an iteration, and what learning rates are scaled by."""
        del models, class_counts
        scaling = settings.scaling()
        sizes = scaling.batch_sizes(range(1, settings.num_workers + 1))
        num_samples = sum(size.discriminator for size in sizes.values())
        factor = scaling.rate_factor(num_samples)
        return [
            ("κ", str(resolve_kappa(settings.kappa, 1))),
            ("samples an iteration", f"{num_samples:,} of {len(sizes)} worker(s)"),
            ("learning rates", "as given" if factor == 1 else f"{factor:.3g} times those given"),
        ]


def _buffered_bytes(settings: DataParallelSettings, models: Models) -> int:
    """Of one batch in the image buffer of a worker; a global batch may all become one worker's."""
    own = settings.scaling().own.discriminator
    batch_size = own if settings.global_batch_size is None else settings.global_batch_size
    return batch_size * (4 * prod(models.shape) + _LABEL_BYTES) + small_bytes(0)


def make_replica(rank: int, needs: HostNeeds[DataParallelSettings]) -> Replica:
    """The replica of one rank; that of rank 1 draws what a single process would draw."""
    settings, shard = needs.settings, needs.shards[rank]
    stream = () if rank == 1 else (rank,)
    return Replica(
        make_local_gan(
            rank,
            needs.models,
            settings,
            shard,
            kappa=resolve_kappa(settings.kappa, 1),
            noise=generator_for(settings.seed, "noise", *stream),
            random_state=RandomState(derive_seed(settings.seed, "server", *stream), needs.device),
            class_counts=shard.class_counts(),
        ),
        needs.models.shape,
    )


BUILDER = _DataParallel()
