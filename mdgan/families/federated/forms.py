"""How users write how much each client trains, and how clients group samples without labels."""

import re
from dataclasses import dataclass

from mdgan.settings.declare import shortest

LOAD_FORMS = "equal, samples, measured, weak:FRACTION,memory, weak:FRACTION,speed"
_LOAD = re.compile(r"equal|samples|measured|weak:([0-9.eE+-]+),(memory|speed)")
CLUSTER_FORMS = "none, kmeans:K, gmm:K"
_CLUSTERS = re.compile(r"none|(?:kmeans|gmm):\d{1,9}")
_MOST_CLUSTERS = 1000


@dataclass(frozen=True)
class LoadForm:
    """How much clients train in a round: a fraction may be weak and have half of `what`."""

    name: str
    fraction: float = 0.0
    what: str = ""

    def __str__(self) -> str:
        """As the command line has it."""
        return f"weak:{shortest(self.fraction)},{self.what}" if self.what else self.name


def parse_load(text: str) -> LoadForm:
    """Reads a `--training-load` value, or raises `ValueError`."""
    match = _LOAD.fullmatch(text)
    if match is None:
        raise ValueError(f"not one of {LOAD_FORMS}")
    if match[2] is None:
        return LoadForm(text)
    try:
        fraction = float(match[1])
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise ValueError("FRACTION must be above 0 and at most 1")
    return LoadForm("weak", fraction, match[2])


@dataclass(frozen=True)
class ClusterForm:
    """How clients group samples that have no labels, and in how many groups: K, 0 with none."""

    method: str = "none"
    number: int = 0

    def __str__(self) -> str:
        """As the command line has it."""
        return f"{self.method}:{self.number}" if self.number else self.method


def parse_clusters(text: str) -> ClusterForm:
    """Reads a `--clusters` value, or raises `ValueError`."""
    if not _CLUSTERS.fullmatch(text):
        raise ValueError(f"not one of {CLUSTER_FORMS}")
    method, _, number = text.partition(":")
    if number and not 2 <= int(number) <= _MOST_CLUSTERS:
        raise ValueError(f"K must be from 2 to {_MOST_CLUSTERS}")
    return ClusterForm(method, int(number or 0))
