"""Workers learn from more samples than a batch has, or as in the paper: for as many bytes."""

from pathlib import Path

from mdgan.records.recorded_run import RecordedRun
from tests.processes import QUICK, check_refused, ended_well, run, run_here

FLAGS = ["train", *QUICK, "--world-size", "4", "--swap-interval", "5"]


def bytes_sent(run_folder: Path) -> list[int]:
    """By iteration, what the server sent with batches."""
    spans = RecordedRun.read(run_folder).traces["server"].spans
    return [
        span.num_bytes for _, done in sorted(spans.items()) for span in done if span.name == "send"
    ]


def test_learning_from_more_takes_no_byte_more(tmp_path: Path) -> None:
    both = run(*FLAGS, "--out", "both", cwd=tmp_path)
    one = run(*FLAGS, "--set", "own_samples=0", "--out", "one", cwd=tmp_path)
    learnt = ended_well(both, tmp_path / "both"), ended_well(one, tmp_path / "one")
    assert learnt[0] != learnt[1]
    sent = bytes_sent(tmp_path / "both")
    assert sent == bytes_sent(tmp_path / "one")
    assert min(sent) > 0
    assert len(sent) == 12


def test_fewer_than_none_are_refused(tmp_path: Path) -> None:
    refused = run_here(*FLAGS, "--set", "own_samples=-1", cwd=tmp_path)
    check_refused(refused, "own_samples", "-1", "must be 0")
