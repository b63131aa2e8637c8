"""Builds the server's part and a host's part of ParaGAN, and foretells runs of it."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import nn
from typing_extensions import override

from mdgan.engine.answers import LEAST_TO_SUM
from mdgan.engine.message_sizes import MessageSizes, small_bytes
from mdgan.families.contract import (
    Builder,
    ClassCounts,
    HostNeeds,
    PlannedRun,
    Planning,
    ServerNeeds,
)
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.apart_server import ApartServer
from mdgan.families.data_parallel.direct import DirectHost, DirectServer
from mdgan.families.data_parallel.host import ApartHost, DataParallelHost
from mdgan.families.data_parallel.messages import KINDS, TOGETHER_FORM, TRAIN
from mdgan.families.data_parallel.replica import ReferenceReplica, Replica
from mdgan.families.data_parallel.server import DataParallelServer
from mdgan.families.data_parallel.settings import DIRECT, SHARED, STAR, DataParallelSettings
from mdgan.families.data_parallel.shared_steps import SharedTraining
from mdgan.families.data_parallel.step import ALONE, reductions
from mdgan.families.data_parallel.together import TogetherHost, TogetherServer
from mdgan.families.data_parallel.vectors import DISCRIMINATOR, GENERATOR, weight_vectors
from mdgan.gan.build import Models, build_model, make_local_gan, make_model, num_parameters
from mdgan.gan.labels import num_classes_of
from mdgan.gan.optimizer_settings import OPTIMIZER_NAMES, Policy
from mdgan.gan.optimizers import training_bytes
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.gan.settings import resolve_kappa

_STATE_BYTES = 1 << 20  # of a worker's positions in its random numbers, and of their names
_LABEL_BYTES = 8
_FLOAT_BYTES = 4
_COPIES = 2  # weights and gradients; only the server has optimizers


class _ParaGANBuilder(Builder[DataParallelSettings]):
    def server(self, needs: ServerNeeds[DataParallelSettings]) -> DataParallelServer | ApartServer:
        settings, models, memory = needs.settings, needs.models, needs.memory
        training, ranks = settings.training, settings.asynchrony.generator_ranks
        networks = {
            GENERATOR: make_model(models.generator, GENERATOR, training, needs.device),
            DISCRIMINATOR: make_model(models.discriminator, DISCRIMINATOR, training, needs.device),
        }
        replica = ReferenceReplica(networks, _policies(settings))
        if ranks is not None:
            return ApartServer(replica, settings, ranks, models.shape)
        if memory is None:
            direct = DirectServer(replica) if settings.all_reduce == DIRECT else None
            return DataParallelServer(replica, settings, direct=direct)
        return DataParallelServer(replica, settings, TogetherServer(replica, memory, settings))

    def host(self, needs: HostNeeds[DataParallelSettings]) -> DataParallelHost | ApartHost:
        replicas = {rank: make_replica(rank, needs) for rank in needs.shards}
        if needs.settings.asynchrony.generator_ranks is not None:
            return ApartHost(replicas, needs.device, needs.tracer)
        together = direct = None
        if needs.settings.all_reduce == DIRECT:
            direct = DirectHost(replicas, _policies(needs.settings), needs.device, needs.tracer)
        if needs.memory is not None:
            host = min(replicas)
            together = TogetherHost(host, replicas, needs.memory, needs.settings, needs.tracer)
        return DataParallelHost(replicas, needs.device, needs.tracer, together, direct)

    def common_memory(
        self, settings: DataParallelSettings, models: Models, hosts: Mapping[int, Sequence[int]]
    ) -> SharedTraining | None:
        """Common memory of hosts that train in it; None where settings or networks rule it out."""
        policies = _policies(settings)
        is_left_behind = settings.faults.deadline is not None
        if settings.all_reduce != SHARED or settings.asynchrony.generator_ranks is not None:
            return None
        # A process steps a part of a network; a user's optimizer, or lookahead, may need it all.
        is_known = not any(
            policy.looks_ahead or policy.inner in OPTIMIZER_NAMES.registered
            for policy in policies.values()
        )
        if is_left_behind or not is_known:
            return None
        networks = _networks(models)
        if any(p.dtype != torch.float32 for net in networks.values() for p in net.parameters()):
            return None
        return SharedTraining(networks, policies, hosts)

    def message_sizes(self, settings: DataParallelSettings, models: Models) -> MessageSizes:
        """Bounds of messages: weights to hosts, gradients from them."""
        networks = _networks(models)
        weights = sum(4 * prod(vector.shape) for vector in weight_vectors(networks).values())
        scaling = settings.scaling()
        sample_bytes = 4 * prod(models.shape) + _LABEL_BYTES
        image_bytes = {  # of a worker's generated batch: a global batch may all become one worker's
            name: (scaling.global_batch_size or scaling.own.of(name)) * sample_bytes
            + small_bytes(0)
            for name in networks
        }
        if settings.asynchrony.generator_ranks is not None:
            gradients = {name: 4 * prod(ALONE[name].vector(networks).shape) for name in ALONE}
            counts = _LABEL_BYTES * (num_classes_of(networks[GENERATOR]) or 0)
            return messages.apart_sizes(_STATE_BYTES, weights + counts, gradients, image_bytes)
        answers = {kind: 4 * prod(r.vector(networks).shape) + 64 for kind, r in KINDS.items()}
        answers[TOGETHER_FORM.kind] = 64
        # A sum is float64, but replaces the answers of three workers or more.
        sizes = MessageSizes(
            _STATE_BYTES + settings.asynchrony.lag_at(1) * image_bytes[DISCRIMINATOR],
            lambda count: {
                kind: count * size + small_bytes(count) for kind, size in answers.items()
            },
            lambda count: {TRAIN: weights + small_bytes(count)},
        )
        if settings.all_reduce != DIRECT:
            return sizes
        policies = _policies(settings)
        trained = [(network, policies[name]) for name, network in networks.items()]
        return messages.with_direct(sizes, training_bytes(*trained), settings.num_workers)

    @override
    def planning(
        self, settings: DataParallelSettings, models: Models, _class_counts: ClassCounts | None
    ) -> Planning[DataParallelSettings]:
        # The short run has the kind of updates, sync or async, that most iterations have.
        weights = [_FLOAT_BYTES * num_parameters(network) for network in _networks(models).values()]
        is_async = settings.asynchrony.lag_at(settings.training.iterations // 2 + 1) > 0
        short = settings.but(sync_after=None, all_reduce=STAR)
        if not is_async:
            short = short.but(updates="sync", image_buffer=None)
        return Planning(
            short,
            questions=len(reductions(int(is_async), settings.training.local_steps)),
            enough_in_a_host=LEAST_TO_SUM,
            worker_bytes=_COPIES * sum(weights),
            in_groups=settings.asynchrony.generator_ranks is not None,
        )

    def describe(self, run: PlannedRun[DataParallelSettings]) -> list[tuple[str, str]]:
        """Rows of `--dry-run`: κ, the samples of an iteration, and the factor of learning rates."""
        settings = run.settings
        kappa = ("κ", str(_kappa(settings)))
        if settings.asynchrony.generator_ranks is None:
            samples, rates = _sharing(settings, settings.groups()[0], DISCRIMINATOR)
            return [kappa, ("samples an iteration", samples), ("learning rates", rates)]
        rows = [kappa]
        for network, group in zip((GENERATOR, DISCRIMINATOR), settings.groups(), strict=True):
            samples, rates = _sharing(settings, group, network)
            ranks = ", ".join(map(str, group))
            rows.append((f"{network} alone", f"rank {ranks}; {samples}; rate {rates}"))
        return rows


def _policies(settings: DataParallelSettings) -> dict[str, Policy]:
    return {name: settings.training.policy(name) for name in (GENERATOR, DISCRIMINATOR)}


def _networks(models: Models) -> dict[str, nn.Module]:
    return {
        GENERATOR: build_model(models.generator, 0),
        DISCRIMINATOR: build_model(models.discriminator, 0),
    }


def _sharing(
    settings: DataParallelSettings, workers: Sequence[int], network: str
) -> tuple[str, str]:
    """In words: how many samples of an iteration workers share, and their learning rate."""
    scaling = settings.scaling()
    sizes = scaling.batch_sizes(workers)
    num_samples = sum(size.of(network) for size in sizes.values())
    factor = scaling.rate_factor(num_samples)
    rates = "as given" if factor == 1 else f"{factor:.3g} times those given"
    return f"{num_samples:,} of {len(sizes)} worker(s)", rates


def _kappa(settings: DataParallelSettings) -> int:
    """How many batches a worker generates; where groups train apart, D learns from G's only one."""
    is_apart = settings.asynchrony.generator_ranks is not None
    return 1 if is_apart else resolve_kappa(settings.kappa, 1)


def make_replica(rank: int, needs: HostNeeds[DataParallelSettings]) -> Replica:
    """The replica of one rank; rank 1 draws the noise that a single process would draw."""
    training, shard = needs.settings.training, needs.shards[rank]
    keeps_classes = needs.settings.privacy.keeps_classes
    stream = () if rank == 1 else (rank,)
    gan = make_local_gan(
        rank,
        needs.models,
        training,
        batches=shard,
        kappa=_kappa(needs.settings),
        noise=generator_for(training.seed, "noise", *stream),
        random_state=RandomState(derive_seed(training.seed, "server", *stream), needs.device),
        class_counts=() if keeps_classes else shard.class_counts(),
    )
    return Replica(gan, needs.models.shape)


BUILDER = _ParaGANBuilder()
