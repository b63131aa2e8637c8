"""Which settings belong to which algorithm, and what their defaults are there.

Two families: in MD-GAN the server has the only generator and workers answer with feedback; in the
federated algorithms workers train both models and the server averages them. FeGAN is FL-GAN with
other defaults: with `--sampling random --weighting uniform` it is FL-GAN bit for bit (Guerraoui et
al. 2020, section 4).
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from mdgan.errors import BadInput
from mdgan.settings.declare import flag

ALGORITHMS = ("mdgan", "fl-gan", "fegan", "standalone")
FEDERATED = ("fl-gan", "fegan")

_EVERYBODY = {"participation": 1.0}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mdgan": _EVERYBODY,
    "standalone": _EVERYBODY,
    "fl-gan": {
        **_EVERYBODY,
        "round_epochs": 1.0,
        "sampling": "random",
        "weighting": "uniform",
    },
    "fegan": {
        "participation": 0.025,
        "round_iterations": 30,
        "batch_size": 50,
        "sampling": "balanced",
        "weighting": "kl",
    },
}
"""Hardy et al. 2019, section V-A; Guerraoui et al. 2020, section 4 (hyper-parameters)."""

_OF_MDGAN = ("swap_interval", "swap_epochs", "swap", "aggregation", "stale", "wire_images")
_OF_FEDERATED = ("round_iterations", "round_epochs", "sampling", "weighting", "training_load")
NOT_OF: Mapping[str, tuple[str, ...]] = {
    "mdgan": (*_OF_FEDERATED, "clusters", "wire_models"),
    "fl-gan": (*_OF_MDGAN, "wire_feedback"),
    "fegan": (*_OF_MDGAN, "wire_feedback"),
    "standalone": (),
}
"""Settings that an algorithm has no use for; the baseline takes the settings of any run."""

LOAD_FORMS = "equal, measured, weak:FRACTION,memory, weak:FRACTION,speed"
_LOAD = re.compile(r"equal|measured|weak:[0-9.eE+-]+,(?:memory|speed)")
CLUSTER_FORMS = "none, kmeans:K, gmm:K"
_CLUSTERS = re.compile(r"none|(?:kmeans|gmm):\d{1,9}")
_MOST_CLUSTERS = 1000


def check_load(form: str) -> None:
    """Checks a `--training-load` value.

    Raises:
        BadInput: not one of the forms, or a fraction out of range.
    """
    if not _LOAD.fullmatch(form):
        raise BadInput(f"--training-load {form}: not one of {LOAD_FORMS}")
    if form.startswith("weak:"):
        fraction = form.removeprefix("weak:").partition(",")[0]
        try:
            fits = 0 < float(fraction) <= 1
        except ValueError:
            fits = False
        if not fits:
            raise BadInput(f"--training-load {form}: FRACTION must be above 0 and at most 1")


def check_clusters(form: str) -> None:
    """Checks a `--clusters` value.

    Raises:
        BadInput: not one of the forms, or K out of range.
    """
    if not _CLUSTERS.fullmatch(form):
        raise BadInput(f"--clusters {form}: not one of {CLUSTER_FORMS}")
    number = form.partition(":")[2]
    if number and not 2 <= int(number) <= _MOST_CLUSTERS:
        raise BadInput(f"--clusters {form}: K must be from 2 to {_MOST_CLUSTERS}")


def check_participation(participation: float) -> None:
    """Checks a `--participation` value.

    Raises:
        BadInput: outside of ]0, 1].
    """
    if not 0 < participation <= 1:
        raise BadInput(f"--participation {participation}: must be above 0 and at most 1")


def check_rounds(iterations: int | None, epochs: float | None) -> None:
    """Checks `--round-iterations` and `--round-epochs`.

    Raises:
        BadInput: both are given, or one is out of range.
    """
    if iterations is not None and epochs is not None:
        raise BadInput(
            f"--round-iterations {iterations} and --round-epochs {epochs}: give one of them"
        )
    if iterations is not None and iterations < 1:
        raise BadInput(f"--round-iterations {iterations}: must be at least 1")
    if epochs is not None and not 0 < epochs < math.inf:
        raise BadInput(f"--round-epochs {epochs}: must be above 0")


def num_participants(fraction: float, num_workers: int) -> int:
    """C·N, rounded to the nearest whole number (a half to the even one), at least 1 of any.

    Args:
        fraction: C in ]0, 1].
        num_workers: N ≥ 0.
    """
    return min(num_workers, max(1, round(fraction * num_workers)))


def check_use(algorithm: str, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuses what would have no effect.

    Args:
        algorithm: the one that is to run.
        settings: values by name.
        defaults: the values that settings have if nobody gives them.

    Raises:
        BadInput: a setting that this algorithm has no use for has a value.
    """
    for name in NOT_OF[algorithm]:
        if settings[name] != defaults[name]:
            others = [other for other in ALGORITHMS[:-1] if name not in NOT_OF[other]]
            raise BadInput(
                f"{flag(name)} {settings[name]}: {algorithm} has no use for it; leave it out, or "
                f"use --algorithm {' or '.join(others[:2])}"
            )
