"""`--resume-or-start`: a cluster starts a job again with the same flags."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.processes import QUICK, generator_bytes, read_metrics, read_status, run_here

FLAGS = ["--transport", "memory", "--world-size", "3", *QUICK, "--checkpoint-interval", "6"]
AGAIN = ["train", *FLAGS, "--resume-or-start", "run"]


def test_a_run_starts_goes_on_or_is_finished(tmp_path: Path) -> None:
    run = tmp_path / "run"
    started = run_here(*AGAIN, cwd=tmp_path)
    assert started.status == 0, started
    assert "done: 12 of 12 iterations" in started.output
    first = generator_bytes(run)

    finished = run_here(*AGAIN, cwd=tmp_path)
    assert finished.status == 0, finished
    assert "run is finished: 12 iterations" in finished.errors
    assert generator_bytes(run) == first

    # It ended while it trained: training goes on from the newest checkpoint.
    shutil.rmtree(run / "checkpoints" / "0000012")
    end(run)
    gone_on = run_here(*AGAIN, cwd=tmp_path)
    assert gone_on.status == 0, gone_on
    # On a slow disk, that of iteration 6 was left out: the first one was still being written.
    assert re.search("going on with run from iteration [06]", gone_on.errors)
    assert generator_bytes(run) == first

    # It ended before its first checkpoint: it starts again.
    shutil.rmtree(run / "checkpoints")
    end(run)
    again = run_here(*AGAIN, cwd=tmp_path)
    assert again.status == 0, again
    assert "run has no checkpoint; starting it again" in again.errors
    assert [row["iteration"] for row in read_metrics(run)] == [1, 12]
    assert generator_bytes(run) == first

    # A checkpoint that is there but damaged is not passed over in silence.
    for manifest in (run / "checkpoints").glob("*/manifest.json"):
        manifest.write_text("damaged")
    end(run)
    damaged = run_here(*AGAIN, cwd=tmp_path)
    assert damaged.status == 2, damaged
    assert "has no whole checkpoint" in damaged.errors


def end(run: Path) -> None:
    """Makes a run look like one whose process was killed."""
    status = {**read_status(run), "state": "running", "process": 0}
    (run / "run.json").write_text(json.dumps(status))


@pytest.mark.parametrize("flag", ["--out", "--resume"])
def test_the_run_is_named_once(flag: str, tmp_path: Path) -> None:
    refused = run_here("train", "--resume-or-start", "run", flag, "other", cwd=tmp_path)
    assert refused.status == 2, refused
    assert f"--resume-or-start run: names the run; leave {flag} out" in refused.errors
