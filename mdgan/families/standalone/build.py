"""Makes the baseline's part, with every random stream as MD-GAN with one worker has it."""

from collections.abc import Mapping

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.shard import Shard
from mdgan.engine.message_sizes import MessageSizes
from mdgan.families.contract import Builder
from mdgan.families.standalone.server import StandaloneServer
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.gan.build import make_local_gan
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.randomness import RandomState, derive_seed, generator_for


class _Standalone(Builder[StandaloneSettings]):
    def server(
        self,
        settings: StandaloneSettings,
        dataset: DatasetFile,
        device: torch.device,
        shards: Mapping[int, Shard],
    ) -> StandaloneServer:
        """Both models and all data."""
        ((rank, shard),) = shards.items()
        gan = make_local_gan(
            rank,
            dataset,
            settings,
            shard,
            kappa=resolve_kappa(settings.kappa, 1),
            noise=generator_for(settings.seed, "noise"),
            random_state=RandomState(derive_seed(settings.seed, "server"), device),
        )
        return StandaloneServer(gan, shard.class_counts())

    def message_sizes(self, settings: StandaloneSettings, dataset: DatasetFile) -> MessageSizes:
        """No messages travel."""
        del settings, dataset
        return MessageSizes(0, lambda _: {}, lambda _: {})

    def describe(
        self, settings: StandaloneSettings, mean_shard_size: float
    ) -> list[tuple[str, str]]:
        """κ."""
        del mean_shard_size
        return [("κ", str(resolve_kappa(settings.kappa, 1)))]


BUILDER = _Standalone()
