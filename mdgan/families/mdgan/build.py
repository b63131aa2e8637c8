"""Makes the two parts of MD-GAN."""

from collections.abc import Mapping
from math import prod

import torch

from mdgan.data.shard import Shard
from mdgan.engine.host.spending import Spending
from mdgan.engine.masked_answers import masks_for
from mdgan.engine.message_sizes import (
    MessageSizes,
    names_bytes,
    shares_bytes,
    small_bytes,
    state_bytes,
)
from mdgan.families.contract import Builder, ClassCounts, HostNeeds, Planning, mean_size
from mdgan.families.mdgan.algorithm import GeneratorLearner
from mdgan.families.mdgan.arrival_server import ArrivalServer
from mdgan.families.mdgan.grouping import make_group
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
from mdgan.families.mdgan.server import MDGANServer
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
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

_VERDICT_BYTES = 4
_LABEL_BYTES = 8
_ADDRESSES_BYTES = 1 << 20


class _MDGAN(Builder[MDGANSettings]):
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
        form = feedback_form(settings, models.shape)
        kind = ArrivalServer if settings.by_arrival else MDGANServer
        return kind(learner, settings, form, _num_weights(models))

    def host(self, needs: HostNeeds[MDGANSettings]) -> MDGANHost:
        """The part of a host, with a worker for each of its shards."""
        workers = {
            rank: make_worker(
                *(rank, needs.settings, needs.models, shard, needs.device),
                needs.budgets.get(rank),
            )
            for rank, shard in needs.shards.items()
        }
        form = feedback_form(needs.settings, needs.models.shape)
        return MDGANHost(
            workers,
            make_group(workers, needs),
            needs.device,
            form,
            needs.tracer,
            Codec.of(needs.settings.wire.images),
            spending=Spending(needs.budgets),
            swaps_weights_only=needs.settings.swaps.swap_state == "weights",
            masks=masks_for(form, needs.keys, needs.least_parties),
        )

    def message_sizes(self, settings: MDGANSettings, models: Models) -> MessageSizes:
        """Batches and feedback to the byte, discriminators with all that moves with them."""
        batch_bytes = 4 * settings.training.batch_size * prod(models.shape)
        label_bytes = _LABEL_BYTES * settings.training.batch_size
        masked = int(settings.secure.secure_aggregation)
        shares = shares_bytes(settings.num_workers, is_secure=settings.secure.secure_aggregation)
        verdicts = _VERDICT_BYTES * settings.training.batch_size
        network = build_model(models.discriminator, 0), settings.training.policy("discriminator")
        states = state_bytes(network)
        return MessageSizes(
            states,
            lambda count: {
                # A masked sum is int64.
                FEEDBACK: count * ((1 + masked) * batch_bytes + verdicts + shares + 64) + (8 << 10),
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
        stale=1 if settings.by_arrival else settings.stale,
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


BUILDER = _MDGAN()
