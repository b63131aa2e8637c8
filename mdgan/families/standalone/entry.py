"""The baseline's entry in the registry."""

from mdgan.families.contract import Algorithm
from mdgan.families.standalone.settings import NAME, StandaloneSettings

STANDALONE = Algorithm(
    NAME,
    "one process that holds all data",
    StandaloneSettings,
    "mdgan.families.standalone.build:BUILDER",
    has_hosts=False,
    server_phases=("generate", "real-half", "fake-half", "local-step", "aggregate", "step"),
    host_phases=(),
)
