"""What `run.json` says at the end of a run whose server could not write it."""

from pathlib import Path

import pytest

from mdgan.launch.claim import Claim
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.fence import Fence


@pytest.mark.parametrize(
    ("message", "status", "state"),
    [
        ("starting", 2, "failed"),
        ("starting", 130, "stopped"),
        ("stopped", 2, "failed"),  # a host could not join, and the launcher stopped the server
        ("stopped", 130, "stopped"),
        ("finished", 0, "finished"),
    ],
)
def test_the_state_of_a_new_run(tmp_path: Path, message: str, status: int, state: str) -> None:
    run = RunDirectory.claim(tmp_path / "run")
    claimed = Claim(run, Fence.claim(run.path), None, False, "", "", "a run")
    with claimed.noting_end() as ended:
        run.write_status({"state": message, "iteration": 0})
        assert ended(status) == status
    assert run.read_status()["state"] == state
