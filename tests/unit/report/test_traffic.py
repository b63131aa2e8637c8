from pathlib import Path

import pytest

from mdgan.records.recorded_run import RecordedRun, Traffic
from mdgan.report.numbers.traffic import role_rate, server_rate, worker_rate
from tests.unit.observe.fake_run import IMAGE_BYTES, FakeRun


def count(iteration: int, sent: int, received: int = 0) -> Traffic:
    return Traffic(iteration, 0.0, {"BATCHES": sent}, {"FEEDBACK": received})


def test_bytes_are_counted_between_the_first_and_the_last_count() -> None:
    rate = role_rate([count(10, 5000, 100), count(20, 9000), count(30, 15_000, 1100)])
    assert rate == ({"batches": 500.0}, {"feedback": 50.0})


def test_a_single_count_is_since_the_start() -> None:
    assert role_rate([count(20, 5000, 100)]) == ({"batches": 250.0}, {"feedback": 5.0})


def test_no_iteration_has_no_rate() -> None:
    assert role_rate([]) is None
    assert role_rate([count(0, 5000)]) is None


def test_a_role_that_starts_again_counts_from_nothing() -> None:
    rate = role_rate([count(10, 1000), count(20, 2000), count(20, 0), count(30, 3000)])
    assert rate == ({"batches": 200.0}, {"feedback": 0.0})


def test_a_kind_that_appears_late_counts_in_full() -> None:
    late = Traffic(20, 0.0, {"BATCHES": 20, "SWAP": 100}, {})
    assert role_rate([count(10, 10), late]) == ({"batches": 1.0, "swap": 10.0}, {})


def test_the_server_sends_two_batches_a_worker_and_receives_one(tmp_path: Path) -> None:
    fake = FakeRun(workers=3, iterations=40, batch_size=8, swap_interval=0)
    rate = server_rate(RecordedRun.read(fake.write(tmp_path / "run")))
    assert rate is not None
    batch = 8 * IMAGE_BYTES
    assert rate.sent == {"batches": 3 * (2 * batch + 200)}
    assert rate.received == {"feedback": 3 * (batch + 8 + 120)}


@pytest.mark.parametrize("workers", [2, 6])
def test_what_a_worker_moves_does_not_grow_with_their_number(tmp_path: Path, workers: int) -> None:
    fake = FakeRun(workers=workers, iterations=40, batch_size=8, swap_interval=0)
    rate = worker_rate(RecordedRun.read(fake.write(tmp_path / "run")))
    assert rate == (
        {"feedback": 8 * IMAGE_BYTES + 128},
        {"batches": 2 * 8 * IMAGE_BYTES + 200},
    )


def test_workers_that_share_a_host_share_what_it_moves(tmp_path: Path) -> None:
    fake = FakeRun(workers=4, workers_per_host=2, iterations=40, swap_interval=0)
    rate = worker_rate(RecordedRun.read(fake.write(tmp_path / "run")))
    assert rate is not None
    assert rate.received == {"batches": (2 * 10 * IMAGE_BYTES + 200) / 2}


def test_a_standalone_run_moves_nothing(tmp_path: Path) -> None:
    run = RecordedRun.read(FakeRun(workers=0, iterations=5).write(tmp_path / "run"))
    assert server_rate(run) is None
    assert worker_rate(run) is None
