"""The baseline: the server's process trains both models on all data, and there are no hosts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm
from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.families.standalone.settings import NAME
from mdgan.gan.local_gan import LocalGAN


class StandaloneServer(ServerPart):
    """Goodfellow et al. 2014, Algorithm 1, on all data.

    Args:
        gan: both models.
        class_counts: of the data, for the report.
    """

    form = AnswerForm("NONE", ())
    role = NAME

    def __init__(self, gan: LocalGAN, class_counts: list[int]) -> None:
        self._gan = gan
        self._class_counts = class_counts

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self._gan.generator

    def holdings(self, engine: Engine) -> Mapping[str, Any]:
        """All data, as if one worker held it."""
        del engine
        return {"1": {"samples": sum(self._class_counts), "classes": self._class_counts}}

    def advance(self, done: int, engine: Engine) -> Advance:
        """One iteration."""
        engine.poll()
        engine.at(done + 1)
        losses = torch.stack(self._gan.step(engine.span))
        return Advance(done + 1, losses.unsqueeze(0))

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return self._gan.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        self._gan.load_state(state)
