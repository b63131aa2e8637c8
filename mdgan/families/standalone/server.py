"""The baseline: one process, the server's, trains both models on all data, without hosts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.message_sizes import MessageSizes
from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.families.contract import Builder, PlannedRun, ServerNeeds
from mdgan.families.standalone.settings import StandaloneSettings
from mdgan.gan.build import Models, make_local_gan
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.gan.settings import resolve_kappa


class StandaloneServer(ServerPart):
    """Takes a step of Goodfellow et al. 2014, Algorithm 1, on all data, in each `advance`."""

    form = AnswerForm("NONE", ())
    role = "standalone"

    def __init__(self, gan: LocalGAN, class_counts: list[int]) -> None:
        self._gan = gan
        self.generator, self.discriminator = gan.generator, gan.discriminator
        self._class_counts = class_counts

    def holdings(self, _engine: Engine) -> Mapping[str, Any]:
        """The data of the run, recorded as those of one worker."""
        return {"1": {"samples": sum(self._class_counts), "classes": self._class_counts}}

    def advance(self, done: int, engine: Engine) -> Advance:
        engine.poll()
        engine.at(done + 1)
        self._gan.at(done + 1)
        losses = torch.stack(self._gan.step(engine.span))
        return Advance(done + 1, losses.unsqueeze(0))

    def state(self) -> dict[str, Tensor]:
        return self._gan.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._gan.load_state(state)


class _Standalone(Builder[StandaloneSettings]):
    def server(self, needs: ServerNeeds[StandaloneSettings]) -> StandaloneServer:
        settings, models, device = needs.settings, needs.models, needs.device
        ((rank, shard),) = needs.shards.items()
        gan = make_local_gan(
            rank,
            models,
            settings.training,
            batches=shard,
            kappa=resolve_kappa(settings.kappa, 1),
            noise=generator_for(settings.training.seed, "noise"),
            random_state=RandomState(derive_seed(settings.training.seed, "server"), device),
            class_counts=() if settings.privacy.keeps_classes else shard.class_counts(),
        )
        return StandaloneServer(gan, shard.class_counts())

    def message_sizes(self, _settings: StandaloneSettings, _models: Models) -> MessageSizes:
        return MessageSizes(0, lambda _: {}, lambda _: {})

    def describe(self, run: PlannedRun[StandaloneSettings]) -> list[tuple[str, str]]:
        return [("κ", str(resolve_kappa(run.settings.kappa, 1)))]


BUILDER = _Standalone()
