"""Runs of the federated algorithms, as users start them."""

from pathlib import Path
from typing import Any

from tests.processes import Finished, generator_bytes, read_events, read_status, run, run_here

QUICK = [
    *("train", "--iterations", "12", "--round-iterations", "5", "--batch-size", "8"),
    *("--threads", "1", "--sample-interval", "0", "--eval-interval", "0"),
]
"""Three rounds: of five, five and two iterations."""
IN_MEMORY = [*QUICK, "--transport", "memory"]


def check(result: Finished, folder: Path, iterations: int = 12) -> bytes:
    """A run that has ended well; its generator."""
    assert result.status == 0, result
    assert "Traceback" not in result.errors
    status = read_status(folder)
    assert (status["state"], status["iteration"]) == ("finished", iterations)
    return generator_bytes(folder)


def here(folder: Path, name: str, *flags: str) -> bytes:
    """Trains in this process."""
    return check(run_here(*IN_MEMORY, *flags, "--out", name, cwd=folder), folder / name)


def spread(folder: Path, name: str, *flags: str) -> bytes:
    """Trains with processes."""
    return check(run(*QUICK, *flags, "--out", name, cwd=folder), folder / name)


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """What was recorded of every round."""
    return read_events(folder, "round")
