from mdgan.records.recorded_run import RecordedSpan, Trace
from mdgan.report.numbers.durations import (
    WORKER_ORDER,
    in_order,
    role_operations,
    worker_operations,
)


def span(name: str, worker: int, seconds: float) -> RecordedSpan:
    return RecordedSpan(name, worker, 0.0, seconds, 0)


def test_a_rare_operation_is_spread_over_all_iterations() -> None:
    spans = {
        1: [span("send", 0, 1.0), span("send", 0, 0.5), span("swap", 0, 4.0)],
        2: [span("send", 0, 2.5)],
        3: [span("send", 0, 100.0)],
    }
    assert role_operations(spans, {1, 2}) == {"send": 2.0, "swap": 2.0}
    assert role_operations(spans, {9}) == {}


def test_a_host_of_two_workers_is_averaged_over_both() -> None:
    trace = Trace(
        "host-1",
        {
            1: [span("receive", 0, 3.0), span("feedback", 1, 1.0), span("feedback", 2, 2.0)],
            2: [span("receive", 0, 5.0), span("feedback", 1, 1.0), span("feedback", 2, 4.0)],
        },
    )
    means, iterations = worker_operations([trace], {1, 2, 3})
    assert means == {"receive": 4.0, "feedback": 2.0}
    assert iterations == 2


def test_hosts_count_as_long_as_they_record() -> None:
    long = Trace("host-1", {i: [span("send", 0, 1.0)] for i in (1, 2, 3)})
    short = Trace("host-2", {1: [span("send", 0, 5.0)]})
    assert worker_operations([long, short], {1, 2, 3}) == ({"send": 2.0}, 3)
    assert worker_operations([], {1}) == ({}, 0)


def test_unknown_operations_come_last() -> None:
    found = in_order({"zip", "swap", "receive", "encrypt"}, WORKER_ORDER)
    assert found == ["receive", "swap", "encrypt", "zip"]
