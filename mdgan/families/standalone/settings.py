"""The settings of the baseline, and its entry in the registry."""

from typing import ClassVar

from mdgan.engine.settings import RunSettings
from mdgan.families.contract import Algorithm
from mdgan.settings.declare import setting, text

NAME = "standalone"


class StandaloneSettings(RunSettings):
    """The settings that every algorithm has; those of other algorithms have no effect."""

    ignores_foreign: ClassVar[bool] = True

    algorithm: str = setting(NAME, "What trains.", text(), is_usual=True)


STANDALONE = Algorithm(
    NAME,
    "one process that holds all data",
    StandaloneSettings,
    builder="mdgan.families.standalone.server:BUILDER",
    has_hosts=False,
    server_phases=("generate", "real-half", "fake-half", "local-step", "aggregate", "step"),
    host_phases=(),
)
