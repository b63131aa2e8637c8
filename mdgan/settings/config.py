"""The settings of a run: frozen, checked once, and the single source of every flag.

`Experiment` says what is computed, `Deployment` where. The command line makes one option of each of
their fields, and `--config FILE.json` accepts the same names.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.settings.declare import suggest
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment


def names(kind: type[Experiment] | type[Deployment]) -> set[str]:
    """The names of all settings of one kind."""
    return {item.name for item in fields(kind)}


def read_config_file(path: Path, besides: Collection[str] = ()) -> dict[str, Any]:
    """Reads a `--config` file: one JSON object with any of the settings' names.

    Args:
        path: the file.
        besides: what else it may name, which is for the caller to check.

    Raises:
        BadInput: not readable, not a JSON object, or a name that no setting has.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--config {path}: cannot read it ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--config {path}: not a JSON file ({error})") from error
    if not isinstance(settings, dict):
        raise BadInput(f"--config {path}: must hold one JSON object of settings")
    known = names(Experiment) | names(Deployment) | set(besides)
    for name in settings:
        if name not in known:
            raise BadInput(f"--config {path}: unknown key {name!r}{suggest(name, known)}")
    return settings


def build_experiment(*layers: Mapping[str, Any]) -> Experiment:
    """Builds the experiment from layers of settings, the first that names a setting wins.

    Args:
        layers: flags, then the config file, then the dataset's own defaults.
    """
    return Experiment(**_merge(names(Experiment), layers))


def build_deployment(*layers: Mapping[str, Any]) -> Deployment:
    """Builds the deployment from layers of settings, the first that names a setting wins."""
    return Deployment(**_merge(names(Deployment), layers))


def combined(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Layers of settings as one that `--config` takes, the first that names a setting wins."""
    return _merge(names(Experiment) | names(Deployment), layers)


# A later layer's rhythm must not collide with an earlier layer's: they are one choice.
_ONE_CHOICE = {
    "swap_interval": "swap_epochs",
    "swap_epochs": "swap_interval",
    "round_iterations": "round_epochs",
    "round_epochs": "round_iterations",
}


def _merge(wanted: set[str], layers: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        chosen_before = set(merged)
        for name, value in layer.items():
            taken = name in chosen_before or _ONE_CHOICE.get(name) in chosen_before
            if name in wanted and value is not None and not taken:
                merged[name] = value
    return merged


def as_settings(experiment: Experiment, deployment: Deployment) -> dict[str, Any]:
    """All settings as one JSON object that `--config` takes back, without the output folder."""
    settings = {**asdict(experiment), **asdict(deployment)}
    return {name: value for name, value in settings.items() if name != "out"}
