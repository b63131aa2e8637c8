"""The audit log of whole runs; `tests/hostile/test_asking.py` has one of several certificates."""

import json
from pathlib import Path

from mdgan.records.audit_log import AUDIT_LOG_FILE, verify
from tests.claims.registry import claim
from tests.processes import run_here

TRAIN = (
    *("train", "--transport", "memory", "--world-size", "3", "--batch-size", "4"),
    *("--threads", "1", "--sample-interval", "0", "--checkpoint-interval", "2", "--out", "run"),
)


@claim("audit-log", "Each line holds the SHA-256 of the line before")
def test_it_goes_on_when_a_run_goes_on(tmp_path: Path) -> None:
    assert run_here(*TRAIN, "--iterations", "2", cwd=tmp_path).status == 0
    run = tmp_path / "run"
    first = verify(run)
    refused = run_here("train", "--resume", "run", cwd=tmp_path)
    assert (refused.status, verify(run)) == (2, first), "all iterations are done"
    assert run_here("train", "--resume", "run", "--iterations", "4", cwd=tmp_path).status == 0
    log = [json.loads(line) for line in (run / AUDIT_LOG_FILE).read_text().splitlines()]
    joins = [entry for entry in log if entry["action"] == "join"]
    assert sorted(rank for entry in joins for rank in entry["ranks"]) == [1, 1, 2, 2]
    assert (verify(run).entries, verify(run).trouble) == (len(log), "")
    assert log[first.entries]["before"] == first.sha256
