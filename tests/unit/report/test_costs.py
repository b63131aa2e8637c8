import json
from pathlib import Path

import pytest

from mdgan.records.recorded_run import RecordedRun, Traffic
from mdgan.report.numbers.costs import (
    bytes_until,
    samples_processed,
    server_bytes,
    worker_bytes,
)
from mdgan.report.numbers.subject import Subject, subjects
from tests.unit.observe.fake_run import IMAGE_BYTES, FakeRun
from tests.unit.observe.federated import federated_run


def count(iteration: int, sent: int, received: int = 0) -> Traffic:
    return Traffic(iteration, 0.0, {"BATCHES": sent}, {"FEEDBACK": received})


def subject(path: Path) -> Subject:
    return subjects([RecordedRun.read(path)])[0]


def test_bytes_between_two_counts_lie_on_a_straight_line() -> None:
    traffic = [count(10, 100, 20), count(20, 300, 20)]
    sizes = [bytes_until(traffic, iteration) for iteration in (0, 5, 10, 15, 20, 99)]
    assert sizes == [0, 60, 120, 220, 320, 320]
    assert bytes_until([], 5) is None


def test_bytes_of_a_role_that_started_again_are_added() -> None:
    traffic = [count(10, 1000), count(20, 2000), count(20, 50), count(30, 500)]
    assert bytes_until(traffic, 30) == 2500
    assert bytes_until(traffic, 20) == 2050


def test_the_server_and_a_worker_of_mdgan(tmp_path: Path) -> None:
    fake = FakeRun(workers=3, iterations=40, batch_size=8, swap_interval=0)
    found = subject(fake.write(tmp_path / "run"))
    a_worker = 3 * 8 * IMAGE_BYTES + 328  # two batches there and one back, and their headers
    assert worker_bytes(found, 40) == 40 * a_worker
    assert server_bytes(found, 40) == 3 * 40 * a_worker
    assert server_bytes(found, 20) == pytest.approx(3 * 20 * a_worker)
    assert samples_processed(found) == 3 * 40 * 8


def test_workers_of_one_host_share_what_it_moves(tmp_path: Path) -> None:
    fake = FakeRun(workers=4, workers_per_host=2, iterations=20, swap_interval=0)
    found = subject(fake.write(tmp_path / "run"))
    hosts = found.run.traces["host-1"].traffic, found.run.traces["host-3"].traffic
    assert worker_bytes(found, 20) == sum(bytes_until(host, 20) or 0 for host in hosts) / 4


def test_the_baseline_moves_nothing_and_processes_one_batch_an_iteration(tmp_path: Path) -> None:
    found = subject(FakeRun(workers=0, iterations=30, batch_size=8).write(tmp_path / "run"))
    assert worker_bytes(found, 30) is None
    assert server_bytes(found, 30) is None
    assert samples_processed(found) == 240


def test_local_steps_count(tmp_path: Path) -> None:
    fake = FakeRun(workers=2, iterations=10, batch_size=8, config={"local_steps": 3})
    assert samples_processed(subject(fake.write(tmp_path / "run"))) == 2 * 10 * 8 * 3


def test_what_a_lost_worker_did_not_do_does_not_count(tmp_path: Path) -> None:
    fake = FakeRun(workers=2, iterations=20, batch_size=10, lost={2: 11})
    processed = samples_processed(subject(fake.write(tmp_path / "run")))
    assert processed is not None
    assert 300 <= processed <= 310  # the iteration in which it was lost may count or not


def test_rounds_count_the_batches_of_workers_whose_models_were_used(tmp_path: Path) -> None:
    path = federated_run(tmp_path / "run", rounds=6, aborted=frozenset({2}), away=frozenset({4}))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    expected = sum(
        line["iterations"][name] * line["batch_sizes"][name]
        for line in lines
        if line.get("event") == "round" and not line["aborted"]
        for name in map(str, line["took_part"])
    )
    assert samples_processed(subject(path)) == expected
