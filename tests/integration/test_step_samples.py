"""Workers learn from more samples than a batch has, for hardly more bytes than in the paper."""

from pathlib import Path

from mdgan.records.recorded_run import RecordedRun
from tests.processes import QUICK, check_refused, ended_well, run_here

FLAGS = ["train", *QUICK, "--world-size", "4", "--swap-interval", "5"]


def bytes_sent(run_folder: Path) -> list[int]:
    """By iteration, what the server sent with batches."""
    spans = RecordedRun.read(run_folder).traces["server"].spans
    return [
        span.num_bytes for _, done in sorted(spans.items()) for span in done if span.name == "send"
    ]


def test_three_workers_learn_from_more_for_fewer_bytes(tmp_path: Path) -> None:
    flags = [*FLAGS, "--transport", "memory", "--workers-per-host", "1"]
    more = run_here(*flags, "--step-samples", "48", "--out", "more", cwd=tmp_path)
    paper = run_here(*flags, "--out", "paper", cwd=tmp_path)
    learnt = ended_well(more, tmp_path / "more"), ended_well(paper, tmp_path / "paper")
    assert learnt[0] != learnt[1]
    of_more, of_paper = (sum(bytes_sent(tmp_path / name)) for name in ("more", "paper"))
    # Three batches with one byte for each value instead of two with four bytes.
    assert of_more < 0.7 * of_paper


def test_fewer_than_none_are_refused(tmp_path: Path) -> None:
    refused = run_here(*FLAGS, "--step-samples", "-1", cwd=tmp_path)
    check_refused(refused, "--step-samples", "-1", "must be 0")
