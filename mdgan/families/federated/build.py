"""Makes the two parts of FL-GAN and FeGAN."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import torch

from mdgan.data.shard import Shard
from mdgan.engine.message_sizes import MessageSizes, small_bytes, state_bytes
from mdgan.engine.settings import num_participants
from mdgan.families.contract import Builder, ClassCounts, HostNeeds, Planning, mean_size
from mdgan.families.federated.capability import tell_capabilities
from mdgan.families.federated.clusters import cluster_counts
from mdgan.families.federated.fegan import check_classes, new_sampling
from mdgan.families.federated.fl_gan import Client, GlobalModels
from mdgan.families.federated.host import FederatedHost
from mdgan.families.federated.messages import ROUND, UPDATE, update_form
from mdgan.families.federated.planning import planning
from mdgan.families.federated.server import FederatedServer
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.build import Models, build_model, make_local_gan, make_model
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.randomness import RandomState, derive_seed, generator_for

_PIECE = 256


class _Federated(Builder[FederatedSettings]):
    def server(
        self,
        settings: FederatedSettings,
        models: Models,
        device: torch.device,
        shards: Mapping[int, Shard],
    ) -> FederatedServer:
        """The server's part, with both models drawn from the seed."""
        del shards
        both = GlobalModels(
            make_model(models.generator, "generator", settings, device),
            make_model(models.discriminator, "discriminator", settings, device),
        )
        sampling = new_sampling(settings.sampling, settings.participation, settings.seed)
        return FederatedServer(both, sampling, settings, device)

    def host(self, needs: HostNeeds[FederatedSettings]) -> FederatedHost:
        """The part of a host, with a client for each of its shards."""
        settings, models = needs.settings, needs.models
        clients = {
            rank: make_client(rank, settings, models, shard, needs.device)
            for rank, shard in needs.shards.items()
        }
        form = update_form(settings, next(iter(clients.values())).vector)
        tell = partial(tell_capabilities, clients, settings, models, needs.num_workers_here)
        return FederatedHost(clients, needs.device, form, needs.tracer, tell)

    def message_sizes(self, settings: FederatedSettings, models: Models) -> MessageSizes:
        """Both models each way."""
        generator = build_model(models.generator, 0)
        discriminator = build_model(models.discriminator, 0)
        both = 4 * prod(ModelVector(generator, discriminator).shape)
        return MessageSizes(
            state_bytes(
                (generator, settings.policy("generator")),
                (discriminator, settings.policy("discriminator")),
            ),
            # The codecs' places and scales come on top of values.
            lambda count: {UPDATE: count * (2 * both + 64) + (8 << 10)},
            lambda count: {ROUND: both + small_bytes(count)},
        )

    def class_counts(self, shard: Shard, settings: FederatedSettings) -> list[int]:
        """With `--clusters` they are groups that the client has found itself."""
        method, number = settings.clusters.method, settings.clusters.number
        if not number:
            return shard.class_counts()
        return cluster_counts(shard.pieces(_PIECE), method, number, settings.seed)

    def check_holdings(
        self, settings: FederatedSettings, class_counts: Mapping[int, Sequence[int]]
    ) -> None:
        """Checks that balanced sampling has something to balance."""
        check_classes(settings.sampling, class_counts, clustered=settings.clusters.number > 0)

    def planning(
        self, settings: FederatedSettings, models: Models, shard_size: int | None
    ) -> Planning[FederatedSettings]:
        """How a few short rounds stand for the run's, and the paper's tables."""
        return planning(settings, models, shard_size)

    def describe(
        self, settings: FederatedSettings, models: Models, class_counts: ClassCounts
    ) -> list[tuple[str, str]]:
        """κ of every client, and how long a round is."""
        del models
        share = num_participants(settings.participation, settings.num_workers)
        length = settings.round_length(mean_size(class_counts))
        return [
            ("κ", str(resolve_kappa(settings.kappa, 1))),
            ("a round", f"{length} iterations of {share} worker(s)"),
        ]


def make_client(
    rank: int, settings: FederatedSettings, models: Models, shard: Shard, device: torch.device
) -> Client:
    """The client of one rank; its models are the server's from the first round on."""
    gan = make_local_gan(
        rank,
        models,
        settings,
        shard,
        kappa=resolve_kappa(settings.kappa, 1),
        noise=generator_for(settings.seed, "noise", rank),
        random_state=RandomState(derive_seed(settings.seed, "client", rank), device),
        class_counts=shard.class_counts(),
    )
    return Client(gan, len(shard))


BUILDER = _Federated()
