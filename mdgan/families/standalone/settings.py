"""The settings of the baseline."""

from dataclasses import dataclass
from typing import ClassVar

from mdgan.engine.settings import RunSettings
from mdgan.settings.declare import setting, text

NAME = "standalone"


@dataclass(frozen=True)
class StandaloneSettings(RunSettings):
    """The settings that every algorithm has; those of other algorithms have no effect."""

    ignores_foreign: ClassVar[bool] = True

    algorithm: str = setting(NAME, "What trains.", text())
