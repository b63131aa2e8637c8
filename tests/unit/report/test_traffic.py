import json
from pathlib import Path

import pytest

from mdgan.records.recorded_run import TrafficCount
from mdgan.report.numbers.traffic import (
    bytes_until,
    role_rate,
    samples_processed,
    server_bytes,
    server_rate,
    worker_bytes,
    worker_rate,
)
from tests.unit.observe.fake_run import IMAGE_BYTES, FakeRun
from tests.unit.observe.federated import federated_run
from tests.unit.report.parsed_page import subject_of


def count(iteration: int, sent: int, received: int = 0) -> TrafficCount:
    return TrafficCount(iteration, 0.0, {"BATCHES": sent}, {"FEEDBACK": received})


LATE = TrafficCount(20, 0.0, {"BATCHES": 20, "SWAP": 100}, {})
"""With a kind that appears late, which counts in full."""


@pytest.mark.parametrize(
    ("traffic", "rate"),
    [
        (
            [count(10, 5000, 100), count(20, 9000), count(30, 15_000, 1100)],
            ({"batches": 500.0}, {"feedback": 50.0}),
        ),
        ([count(20, 5000, 100)], ({"batches": 250.0}, {"feedback": 5.0})),
        ([], None),
        ([count(0, 5000)], None),
        (
            [count(10, 1000), count(20, 2000), count(20, 0), count(30, 3000)],
            ({"batches": 200.0}, {"feedback": 0.0}),
        ),
        ([count(10, 10), LATE], ({"batches": 1.0, "swap": 10.0}, {})),
    ],
    ids=["between counts", "one count", "none", "no iteration", "a new start", "a late kind"],
)
def test_bytes_an_iteration(traffic: list[TrafficCount], rate: object) -> None:
    assert role_rate(traffic) == rate


def test_bytes_between_two_counts_lie_on_a_straight_line() -> None:
    traffic = [count(10, 100, 20), count(20, 300, 20)]
    sizes = [bytes_until(traffic, iteration) for iteration in (0, 5, 10, 15, 20, 99)]
    assert sizes == [0, 60, 120, 220, 320, 320]
    assert bytes_until([], 5) is None
    again = [count(10, 1000), count(20, 2000), count(20, 50), count(30, 500)]
    assert [bytes_until(again, iteration) for iteration in (20, 30)] == [2050, 2500]


def test_the_server_and_a_worker_of_mdgan(tmp_path: Path) -> None:
    fake = FakeRun(workers=3, iterations=40, batch_size=8, swap_interval=0)
    of_run, batch = subject_of(fake.write(tmp_path / "run")), 8 * IMAGE_BYTES
    moved = {"batches": 3 * (2 * batch + 200)}, {"feedback": 3 * (batch + 8 + 120)}
    assert server_rate(of_run.run) == moved
    assert worker_rate(of_run.run) == ({"feedback": batch + 128}, {"batches": 2 * batch + 200})
    a_worker = 3 * 8 * IMAGE_BYTES + 328  # two batches there and one back, and their headers
    assert worker_bytes(of_run, 40) == 40 * a_worker
    assert server_bytes(of_run, 40) == 3 * 40 * a_worker
    assert server_bytes(of_run, 20) == pytest.approx(3 * 20 * a_worker)
    assert samples_processed(of_run) == 3 * 40 * 8


def test_workers_of_one_host_share_what_it_moves(tmp_path: Path) -> None:
    fake = FakeRun(workers=4, workers_per_host=2, iterations=20, swap_interval=0)
    of_run = subject_of(fake.write(tmp_path / "run"))
    rate = worker_rate(of_run.run)
    assert rate is not None
    assert rate.received == {"batches": (2 * 10 * IMAGE_BYTES + 200) / 2}
    hosts = of_run.run.traces["host-1"].traffic, of_run.run.traces["host-3"].traffic
    assert worker_bytes(of_run, 20) == sum(bytes_until(host, 20) or 0 for host in hosts) / 4


def test_the_baseline_moves_nothing_and_processes_one_batch_an_iteration(tmp_path: Path) -> None:
    of_run = subject_of(FakeRun(workers=0, iterations=30, batch_size=8).write(tmp_path / "run"))
    assert server_rate(of_run.run) is worker_rate(of_run.run) is None
    assert worker_bytes(of_run, 30) is server_bytes(of_run, 30) is None
    assert samples_processed(of_run) == 240
    fake = FakeRun(workers=2, iterations=10, batch_size=8, config={"local_steps": 3})
    assert samples_processed(subject_of(fake.write(tmp_path / "steps"))) == 2 * 10 * 8 * 3


def test_what_a_lost_worker_did_not_do_does_not_count(tmp_path: Path) -> None:
    fake = FakeRun(workers=2, iterations=20, batch_size=10, lost={2: 11})
    processed = samples_processed(subject_of(fake.write(tmp_path / "run")))
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
    assert samples_processed(subject_of(path)) == expected
