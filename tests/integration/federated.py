"""Starts runs of the federated algorithms, as users do."""

from pathlib import Path
from typing import Any

from tests.processes import ended_well, read_events, run, run_here

QUICK = [
    *("train", "--iterations", "12", "--round-iterations", "5", "--batch-size", "8"),
    *("--threads", "1", "--sample-interval", "0", "--eval-interval", "0"),
]
"""Three rounds: of five, five and two iterations."""
IN_MEMORY = [*QUICK, "--transport", "memory"]


def train_in_memory(folder: Path, name: str, *flags: str) -> bytes:
    """Trains in this process."""
    return ended_well(run_here(*IN_MEMORY, *flags, "--out", name, cwd=folder), folder / name)


def spread(folder: Path, name: str, *flags: str) -> bytes:
    """Trains with processes."""
    return ended_well(run(*QUICK, *flags, "--out", name, cwd=folder), folder / name)


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """What was recorded of every round."""
    return read_events(folder, "round")
