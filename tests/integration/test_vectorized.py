"""Hosts that compute all their workers at once, or try whether that is faster."""

from pathlib import Path

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.report.numbers.durations import worker_operations
from tests.gallery import Gallery
from tests.processes import (
    Finished,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run,
    run_here,
)

FLAGS = [
    *("train", "--world-size", "5", "--batch-size", "8", "--swap-interval", "3"),
    *("--sample-interval", "0", "--checkpoint-interval", "5", "--log-interval", "1"),
]
AT_ONCE = [*FLAGS, "--transport", "memory", "--threads", "1", "--vectorize"]


def finished(result: Finished, folder: Path, iterations: int) -> None:
    assert result.status == 0, result
    assert "one by one" not in result.errors, result
    assert read_status(folder)["state"] == "finished"
    assert read_status(folder)["iteration"] == iterations


@pytest.fixture(scope="session")
def at_once(gallery: Gallery) -> Path:
    """A run of 14 iterations."""

    def make(folder: Path) -> None:
        result = run_here(*AT_ONCE, "--iterations", "14", "--out", "whole", cwd=folder)
        finished(result, folder / "whole", 14)

    return gallery.show("vectorized", make) / "whole"


def test_all_at_once_over_processes(tmp_path: Path, at_once: Path) -> None:
    """With the same bits as in one process; swaps move what was given."""
    flags = ["--threads", "1", "--vectorize", "--workers-per-host", "4", "--iterations", "14"]
    result = run(*FLAGS, *flags, "--out", "run", cwd=tmp_path)
    finished(result, tmp_path / "run", 14)
    swaps = read_events(tmp_path / "run", "swap")
    assert [event["iteration"] for event in swaps] == [3, 6, 9, 12]
    assert all(event["exact"] for event in swaps)
    assert generator_bytes(tmp_path / "run") == generator_bytes(at_once)


def test_it_trains_as_one_by_one_does(tmp_path: Path, at_once: Path) -> None:
    """Dropout's masks differ, so that losses are alike and not equal."""
    flags = [flag for flag in AT_ONCE if flag != "--vectorize"]
    result = run_here(*flags, "--iterations", "14", "--out", "singly", cwd=tmp_path)
    assert result.status == 0, result
    losses = [
        [record["discriminator_loss"] for record in read_metrics(folder)]
        for folder in (at_once, tmp_path / "singly")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]


def test_it_goes_on_bit_by_bit(tmp_path: Path, at_once: Path) -> None:
    first = run_here(*AT_ONCE, "--iterations", "10", "--out", "half", cwd=tmp_path)
    finished(first, tmp_path / "half", 10)
    second = run_here("train", "--resume", "half", "--iterations", "14", cwd=tmp_path)
    finished(second, tmp_path / "half", 14)
    assert generator_bytes(tmp_path / "half") == generator_bytes(at_once)


def test_every_worker_is_seen_at_work(at_once: Path) -> None:
    """Reports draw a lane for each, and divide bytes among them."""
    hosts = RecordedRun.read(at_once).hosts
    assert {span.worker for span in hosts[0].spans[5]} == {0, 1, 2, 3, 4}
    seconds, _ = worker_operations(hosts, range(1, 15))
    assert seconds.keys() >= {"receive", "real half", "fake half", "local step", "feedback"}
