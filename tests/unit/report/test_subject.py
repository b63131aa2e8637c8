from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun, Trace
from mdgan.report.numbers.subject import differing_settings, labels
from tests.unit.observe.fake_run import FakeRun
from tests.unit.records.made_up import run_of
from tests.unit.report.parsed_page import subject_of

MDGAN = {"algorithm": "mdgan", "world_size": 5, "seed": 0}


def run(name: str, role: str = "server", **config: Any) -> RecordedRun:
    traces = {role: Trace(role)}
    return run_of(name=name, config={**MDGAN, **config}, traces=traces)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([{}], ["4 workers"]),
        ([{"world_size": 2}], ["1 worker"]),
        ([{"world_size": 5}, {"world_size": 11}], ["4 workers", "10 workers"]),
        ([{"algorithm": "alone", "role": "alone"}, {}], ["alone", "4 workers"]),
        (
            [{"swap_interval": 20}, {"swap_interval": 0}],
            ["4 workers, swap interval 20", "4 workers, no swap"],
        ),
        (
            [{"swap_interval": 0}, {"swap_interval": None, "swap_epochs": 1.5}],
            ["4 workers, no swap", "4 workers, swap epochs 1.5"],
        ),
        (
            [{"seed": 1}, {"seed": 2}, {"world_size": 3}],
            ["4 workers, seed 1", "4 workers, seed 2", "2 workers"],
        ),
        (
            [{"partition": "iid", "batch_size": 10}, {"partition": "sorted", "batch_size": 32}],
            ["4 workers, iid, b = 10", "4 workers, sorted, b = 32"],
        ),
        ([{"algorithm": "new"}, {}], ["4 workers, new", "4 workers, mdgan"]),
        ([{}, {}], ["4 workers (r0)", "4 workers (r1)"]),
        ([{"data_dir": "/a"}, {"data_dir": "/b"}], ["4 workers (r0)", "4 workers (r1)"]),
    ],
)
def test_a_run_is_called_by_what_tells_it_apart(
    configs: list[dict[str, Any]], expected: list[str]
) -> None:
    assert labels([run(f"r{n}", **config) for n, config in enumerate(configs)]) == expected


def test_labels_differ_whatever_the_runs_are() -> None:
    runs = [run("same", note="x" * 200 + str(n)) for n in range(3)]
    found = labels(runs)
    assert len(set(found)) == 3
    assert all(len(label) < 60 for label in found)


def test_labels_are_one_line() -> None:
    found = labels([run("a", partition="first\nsecond"), run("b", partition="iid")])
    assert found[0] == "4 workers, first second"


def test_settings_that_differ_are_found_in_order() -> None:
    configs = [{"a": 1, "b": [1], "c": None}, {"a": 1, "b": [2], "d": 0}, {"a": 1, "b": [1]}]
    assert differing_settings(configs) == ["b", "d"]
    assert differing_settings(configs[:1]) == []


def test_outliers_are_the_slow_iterations(tmp_path: Path) -> None:
    fake = FakeRun(workers=4, iterations=200, slow=frozenset({50, 151}))
    subject = subject_of(fake.write(tmp_path / "run"))
    assert subject.outliers == {50, 151}
    assert len(subject.ordinary) == 198
    assert subject.num_workers == 4
