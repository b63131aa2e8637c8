"""The command that trains one configuration, and the plan that it would make."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdgan.launch.prepare import prepare


@dataclass(frozen=True)
class Checked:
    """What is known of a training that has not begun.

    Attributes:
        resolved: every setting, as a run's `config.json` has them.
        everyone_here: whether all ranks run on this machine.
        num_computing: processes that compute at the same time.
        warnings: one line each.
    """

    resolved: Mapping[str, Any]
    everyone_here: bool
    num_computing: int
    warnings: tuple[str, ...]


def plan_of(settings: Mapping[str, Any]) -> Checked:
    """Checks settings as the command would: the data set, its files, who holds what.

    Raises:
        BadInput: anything cannot work.
    """
    prepared = prepare(settings)
    alone = not prepared.algorithm.has_hosts or prepared.launch.transport == "memory"
    return Checked(
        prepared.config,
        alone or prepared.ranks.everyone,
        1 if alone else len(prepared.ranks.hosts),
        prepared.warnings,
    )


def train_command(config: Path, seed: int, folder: Path, *, resume: bool) -> list[str]:
    """What is run.

    Args:
        config: its settings.
        seed: of everything random.
        folder: of the run.
        resume: whether the run is there and goes on from its newest checkpoint.
    """
    where = ["--resume" if resume else "--out", str(folder)]
    settings = ["--config", str(config), "--seed", str(seed)]
    return [sys.executable, "-m", "mdgan", "train", *settings, *where]
