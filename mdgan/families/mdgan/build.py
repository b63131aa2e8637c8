"""Makes the two parts of MD-GAN."""

from collections.abc import Mapping, Sequence
from math import prod

import torch

from mdgan.data.shard import Shard
from mdgan.engine.host.spending import Spending
from mdgan.engine.message_sizes import (
    MessageSizes,
    names_bytes,
    shares_bytes,
    small_bytes,
    state_bytes,
)
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.engine.stages.mask_server import ServerMask
from mdgan.families.contract import Builder, ClassCounts, HostNeeds, Planning, mean_size
from mdgan.families.mdgan.algorithm import GeneratorLearner
from mdgan.families.mdgan.arrival import ByArrival
from mdgan.families.mdgan.host import MDGANHost
from mdgan.families.mdgan.messages import (
    BATCHES,
    DISCRIMINATORS,
    FEEDBACK,
    SWAP,
    SWAPPED,
    feedback_form,
)
from mdgan.families.mdgan.planning import planning
from mdgan.families.mdgan.server import InStep, MDGANServer, Stepping
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import LearningLater, OneByOne, Worker, stacked
from mdgan.gan.arithmetic import loss_scale
from mdgan.gan.build import (
    Models,
    build_model,
    make_discriminator_learner,
    make_model,
    num_parameters,
)
from mdgan.gan.codecs import Codec
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.privacy.budget import Budget, make_half

_OUTPUT_BYTES = 4
_LABEL_BYTES = 8
_ADDRESSES_BYTES = 1 << 20


class MDGANBuilder(Builder[MDGANSettings]):
    """Makes the two parts of MD-GAN."""

    def server(
        self,
        settings: MDGANSettings,
        models: Models,
        device: torch.device,
        shards: Mapping[int, Shard],
    ) -> MDGANServer:
        """The server's part, with w drawn from the seed."""
        del shards
        learner = make_generator_learner(settings, models, device)
        return make_server(learner, settings, models.shape, _num_weights(models))

    def host(self, needs: HostNeeds[MDGANSettings]) -> MDGANHost:
        """The part of a host, with a worker for each of its shards."""
        settings = needs.settings
        workers = {
            rank: make_worker(
                *(rank, settings, needs.models, shard, needs.device), needs.budgets.get(rank)
            )
            for rank, shard in needs.shards.items()
        }
        form = feedback_form(settings, needs.models.shape)
        path = HostPath(form)
        if settings.secure.secure_aggregation and needs.keys is not None:
            path = HostMask(needs.keys, form, needs.least_parties)
        return MDGANHost(
            workers,
            make_group(workers, needs),
            path,
            needs.tracer,
            Codec.of(settings.wire.images),
            Spending(needs.budgets),
        )

    def message_sizes(self, settings: MDGANSettings, models: Models) -> MessageSizes:
        """Batches and feedback to the byte, discriminators with all that moves with them."""
        batch_bytes = 4 * settings.training.batch_size * prod(models.shape)
        label_bytes = _LABEL_BYTES * settings.training.batch_size
        masked = int(settings.secure.secure_aggregation)
        shares = shares_bytes(settings.num_workers, is_secure=settings.secure.secure_aggregation)
        outputs = _OUTPUT_BYTES * settings.training.batch_size
        network = build_model(models.discriminator, 0), settings.training.policy("discriminator")
        states = state_bytes(network)
        return MessageSizes(
            states,
            lambda count: {
                # A masked sum is int64.
                FEEDBACK: count * ((1 + masked) * batch_bytes + outputs + shares + 64) + (8 << 10),
                SWAPPED: small_bytes(count),
            },
            lambda count: {
                # Each uses two at most.
                BATCHES: 2 * count * (batch_bytes + label_bytes) + small_bytes(count) + shares,
                SWAP: _ADDRESSES_BYTES + small_bytes(count),
            },
            lambda count: {DISCRIMINATORS: count * states + small_bytes(0)},
            names_bytes(network),
            shares_bytes=shares,
        )

    def planning(
        self, settings: MDGANSettings, models: Models, class_counts: ClassCounts | None
    ) -> Planning[MDGANSettings]:
        """How few workers stand for all of them, and the paper's tables."""
        return planning(settings, models, class_counts)

    def describe(
        self, settings: MDGANSettings, models: Models, class_counts: ClassCounts
    ) -> list[tuple[str, str]]:
        """κ, and how often discriminators are swapped."""
        every = settings.swap_every(mean_size(class_counts), class_counts, _num_weights(models))
        return [
            ("κ", str(resolve_kappa(settings.kappa, settings.num_sharing))),
            ("swap", f"every {every} iterations" if every else "never"),
        ]


def _num_weights(models: Models) -> int:
    """|θ|."""
    return num_parameters(build_model(models.discriminator, 0))


def make_server(
    learner: GeneratorLearner,
    settings: MDGANSettings,
    sample_shape: Sequence[int],
    num_weights: int = 0,
) -> MDGANServer:
    """The server's part with this learner; see `MDGANServer`."""
    form = feedback_form(settings, sample_shape)
    path = ServerMask(form) if settings.secure.secure_aggregation else ServerPath(form)
    stepping: Stepping = ByArrival() if settings.by_arrival else InStep(ahead=settings.stale > 0)
    return MDGANServer(learner, settings, path, stepping, num_weights)


def make_group(workers: Mapping[int, Worker], needs: HostNeeds[MDGANSettings]) -> OneByOne:
    """The workers of one host, by rank, as they compute together."""
    settings, stage_of = needs.settings, needs.tracer.of_worker
    if settings.updates == "async":
        return LearningLater(workers, stage_of)
    if settings.vectorize and len(workers) > 1:
        shape, is_compiled = needs.models.shape, settings.training.arithmetic.compile
        return stacked(workers, shape, stage_of, is_compiled=is_compiled)
    return OneByOne(workers, stage_of)


def make_generator_learner(
    settings: MDGANSettings, models: Models, device: torch.device
) -> GeneratorLearner:
    """The server's learner, with w drawn from the seed."""
    generator = make_model(models.generator, "generator", settings.training, device)
    policy = settings.training.policy("generator")
    return GeneratorLearner(
        generator,
        make_optimizer(generator, policy),
        z_dim=models.z_dim,
        batch_size=settings.training.batch_size,
        noise=generator_for(settings.training.seed, "noise"),
        random_state=RandomState(derive_seed(settings.training.seed, "server"), device),
        loss_scale=loss_scale(settings.training.arithmetic.precision),
        policy=policy,
    )


def make_worker(
    rank: int,
    settings: MDGANSettings,
    models: Models,
    shard: Shard,
    device: torch.device,
    budget: Budget | None = None,
) -> Worker:
    """The worker of one rank, whose samples may spend a budget."""
    half = make_half(shard, rank, settings, budget)
    return make_discriminator_learner(
        *(Worker, rank, models.discriminator, settings.training, half or shard, device),
        real_half=half,
    )


BUILDER = MDGANBuilder()
