"""`--cores` on real processes, observed from outside."""

import os
import signal
from pathlib import Path

import pytest

from tests.processes import finish, training

pytestmark = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="needs the cores 0 and 1"
)
LONG = [*("train", "--iterations", "100000", "--batch-size", "8"), "--eval-interval", "0"]


def allowed(process: int, thread: int) -> str:
    """The cores of a thread, as the system lists them."""
    for line in Path(f"/proc/{process}/task/{thread}/status").read_text().splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return line.partition(":")[2].strip()
    raise AssertionError("a status names the cores")


def threads_of(process: int) -> list[int]:
    return [int(path.name) for path in Path(f"/proc/{process}/task").iterdir()]


@pytest.mark.slow
def test_every_host_computes_on_its_cores(tmp_path: Path) -> None:
    """Three hosts as on a machine that is fast, and one that is shared by two."""
    run = training(tmp_path, *LONG, "--world-size", "4", "--cores", "0,1,1")
    usual = allowed(os.getpid(), os.getpid())
    results = [allowed(host, host) for host in run.hosts()]
    of_server = {allowed(run.server(), thread) for thread in threads_of(run.server())}
    # A thread was started before: it ends the host if the launcher is gone.
    of_first_host = [allowed(run.hosts()[0], thread) for thread in threads_of(run.hosts()[0])]
    os.kill(run.process.pid, signal.SIGTERM)
    finish(run.process)
    assert results == ["0", "1", "1"]
    assert of_server == {usual}
    assert of_first_host.count(usual) <= 1
    assert len(of_first_host) > 2
