"""Differential privacy with noise that comes from `--seed`, so that bits can be compared.

No flag and no setting can ask for it: this voids all privacy. Tests have the fixture `known_noise`
of their conftest; `python -m tests.known_noise train …` is `mdgan` with such noise.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from mdgan.engine.host import held_samples
from mdgan.engine.settings import RunSettings
from mdgan.families.federated import poisson_rounds
from mdgan.privacy.budget import Budget, known_to_all, open_budget, open_clients_budget
from mdgan.privacy.real_half import SeededSteps
from tests.processes import REPOSITORY, Finished, finish, start


class KnownBudget(Budget):
    """A budget that counts what is spent, and whose keys all may know."""

    def __init__(self, budget: Budget, seed: int, rank: int) -> None:
        vars(self).update(vars(budget))
        self._known = SeededSteps(known_to_all(seed, rank))
        # A test that names a ledger goes on with it; others know nothing of each other's runs.
        self._begun = 0 if self._settings.privacy.dp_ledger else self.taken

    def key(self, use: str) -> bytes:
        super().key(use)
        self._known.count = self.taken - self._begun
        return self._known.key(use)


def make_noise_known(patch: pytest.MonkeyPatch) -> None:
    """Has all budgets that this process opens draw from the run's seed and the worker's rank."""

    def of_samples(rank: int, num: int, settings: RunSettings, *rest: Any) -> Budget | None:
        budget = open_budget(rank, num, settings, *rest)
        return None if budget is None else KnownBudget(budget, settings.training.seed, rank)

    def of_clients(settings: RunSettings, *rest: Any) -> Budget:
        return KnownBudget(open_clients_budget(settings, *rest), settings.training.seed, 0)

    patch.setattr(held_samples, "open_budget", of_samples)
    patch.setattr(poisson_rounds, "open_clients_budget", of_clients)


def run_with_known_noise(*arguments: str, cwd: Path) -> Finished:
    """Runs `mdgan` with such noise in processes of its own, to its end."""
    command = [sys.executable, "-m", "tests.known_noise", *arguments]
    return finish(start(command, cwd, PYTHONPATH=str(REPOSITORY)), 180)


if __name__ == "__main__":
    from mdgan.cli import run

    make_noise_known(pytest.MonkeyPatch())
    run()
