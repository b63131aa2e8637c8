"""Workers train on both batches that they get, or on one as in the paper: for as many bytes."""

from pathlib import Path

from mdgan.records.recorded_run import RecordedRun
from tests.processes import QUICK, check_refused, ended_well, run, run_here

FLAGS = ["train", *QUICK, "--world-size", "4", "--swap-interval", "5"]


def bytes_moved(run_folder: Path) -> list[tuple[int, int, int]]:
    """By iteration, what the server sent and got."""
    spans = RecordedRun.read(run_folder).traces["server"].spans
    moved = []
    for iteration, done in sorted(spans.items()):
        by_name = {span.name: span.num_bytes for span in done}
        moved.append((iteration, by_name.get("send", 0), by_name.get("wait", 0)))
    return moved


def test_the_second_batch_takes_no_byte_more(tmp_path: Path) -> None:
    both = run(*FLAGS, "--out", "both", cwd=tmp_path)
    one = run(*FLAGS, "--set", "fake_batches=1", "--out", "one", cwd=tmp_path)
    learnt = ended_well(both, tmp_path / "both"), ended_well(one, tmp_path / "one")
    assert learnt[0] != learnt[1]
    moved = bytes_moved(tmp_path / "both")
    assert moved == bytes_moved(tmp_path / "one")
    assert sum(sent for _, sent, _ in moved) > 0


def test_another_number_is_refused(tmp_path: Path) -> None:
    refused = run_here(*FLAGS, "--set", "fake_batches=3", cwd=tmp_path)
    check_refused(refused, "fake_batches", "3", "must be 1 or 2")
