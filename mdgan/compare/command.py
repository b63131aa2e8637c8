"""The command that trains one configuration, and what it would resolve to."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdgan.launch.prepare import prepare


@dataclass(frozen=True)
class Checked:
    """The settings of a training, checked before it begins.

    Attributes:
        resolved: every setting, as the run's `config.json` will hold it.
        everyone_here: whether all ranks run on this machine.
        num_computing: how many processes compute at the same time.
        warnings: one line each.
    """

    resolved: Mapping[str, Any]
    everyone_here: bool
    num_computing: int
    warnings: tuple[str, ...]


def plan_of(settings: Mapping[str, Any]) -> Checked:
    """Checks settings as the command would: the data set, its files, the workers' shares.

    Raises:
        BadInput: the training cannot work.
    """
    prepared = prepare(settings)
    alone = not prepared.algorithm.has_hosts or prepared.launch.transport == "memory"
    return Checked(
        prepared.config,
        alone or prepared.ranks.complete,
        1 if alone else len(prepared.ranks.hosts),
        prepared.warnings,
    )


def train_command(config: Path, seed: int, folder: Path, *, resume: bool) -> list[str]:
    """The command line of one training.

    Args:
        config: the file with its settings.
        seed: of everything random.
        folder: of the run.
        resume: whether the run goes on from its newest checkpoint; else it is new.
    """
    where = ["--resume" if resume else "--out", str(folder)]
    settings = ["--config", str(config), "--seed", str(seed)]
    return [sys.executable, "-m", "mdgan", "train", *settings, *where]
