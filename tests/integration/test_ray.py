"""Runs on a real Ray cluster of several raylets, two of which die."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import (
    QUICK,
    REPOSITORY,
    environment,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run_here,
    start_anew,
    wait_until,
)
from tests.ray_cluster import RayCluster, process_of, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.filterwarnings("default"),  # of Ray's own files and sockets
]
TRAIN = [sys.executable, "-m", "mdgan", "train", "--launcher", "ray"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    made = RayCluster(4)
    yield made
    made.stop()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def until(holds: Callable[[], bool], seconds: float, log: Path) -> None:
    wait_until(holds, lambda: log.read_text()[-5000:], seconds)


def test_actors_of_ray_give_the_same_generator(cluster: RayCluster, tmp_path: Path) -> None:
    flags = ["--world-size", "4", *QUICK]
    alone = run_here("train", "--transport", "memory", *flags, "--out", "alone", cwd=tmp_path)
    assert alone.status == 0, alone
    spread = finish(
        start_anew(
            [*TRAIN, "--ray-address", cluster.address, *flags, "--out", "spread"],
            tmp_path,
            PYTHONPATH=str(REPOSITORY),
        ),
        300,
    )
    assert spread.status == 0, spread
    assert "starting 4 processes by Ray for" in spread.errors
    assert spread.output.startswith("done: 12 of 12 iterations"), spread
    assert generator_bytes(tmp_path / "spread") == generator_bytes(tmp_path / "alone")
    assert not any(process_of(str(rank)) for rank in range(4))


def test_a_run_outlives_nodes_of_ray(cluster: RayCluster, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    flags = [
        *("--world-size", "3", "--batch-size", "8", "--threads", "1", "--sample-interval", "0"),
        *("--eval-interval", "0", "--checkpoint-interval", "20", "--iterations", "1000000"),
        *("--liveness-timeout", "5", "--out", str(run), "--log-file", str(log)),
    ]
    driver = start_anew(
        [*TRAIN, "--ray-address", cluster.address, *flags], tmp_path, PYTHONPATH=str(REPOSITORY)
    )

    def reached() -> int:
        return max((int(row["iteration"]) for row in read_metrics(run)), default=0)

    def said(text: str) -> bool:
        return log.exists() and text in log.read_text()

    until(lambda: reached() > 40, 180, log)

    # The node of a host dies: training goes on, and the host comes back on another node.
    cluster.kill_node_of("2")
    until(lambda: bool(read_events(run, "lost")), 60, log)
    until(lambda: said("rank 2: its node is gone; Ray places it anew"), 60, log)
    until(lambda: bool(read_events(run, "joined")), 120, log)
    (joined,) = read_events(run, "joined")
    assert [int(worker) for worker in joined["workers"]] == [2]
    came = reached()
    until(lambda: reached() > came + 10, 60, log)

    # The node of the server dies: it goes on elsewhere, and the hosts come to it.
    cluster.add_node()
    before = reached()
    cluster.kill_node_of("0")
    until(lambda: said("rank 0: its node is gone; Ray places it anew"), 60, log)
    until(lambda: said(f"going on with {run} from iteration"), 120, log)
    until(lambda: reached() > before, 120, log)

    driver.send_signal(signal.SIGINT)
    done = finish(driver, 60)
    assert done.status == 130, done
    assert "stopped when asked to" in done.output
    assert read_status(run)["state"] == "stopped"
    assert not any(process_of(str(rank)) for rank in range(3))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--ray-address", "127.0.0.1:1"], "--ray-address 127.0.0.1:1: no cluster answers"),
        (["--ray-address", "%s{x}:1"], "--ray-address %s{x}:1: no cluster answers"),
        (
            ["--host-resources", '{"GPU": 1}', "--set", "connect_timeout=3"],
            "Ray has had no place for",
        ),
    ],
)
def test_a_cluster_that_cannot_serve_is_refused_in_one_line(
    cluster: RayCluster, tmp_path: Path, flags: list[str], says: str
) -> None:
    command = [*TRAIN, "--ray-address", cluster.address, *flags]
    refused = finish(start_anew(command, tmp_path, **environment(PYTHONPATH=str(REPOSITORY))), 120)
    assert refused.status == 2, refused
    *early, line = [line for line in refused.errors.splitlines() if "starting" not in line]
    assert line.startswith("mdgan: ")
    assert says in line
    assert all("have room for 0 of 3 processes" in told for told in early)
