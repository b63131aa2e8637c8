"""The wall clock may be set at any moment: by hand, by NTP, after a suspension.

So waiting, time limits and durations go by the monotonic clock. The wall clock is for what people
read, and for what machines compare with each other.
"""

import itertools
import logging
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mdgan.cli import logs
from mdgan.observe import watch
from mdgan.observe.watch import WatchedRun
from tests.processes import REPOSITORY, generator_bytes, read_metrics, run_here
from tests.unit.observe.run_files import RunFiles

READ_BY_PEOPLE = {
    "mdgan/chaos/actors.py": "when a line was printed, beside the server's records",
    "mdgan/launch/faults.py": "when a fault struck, beside the server's records",
    "mdgan/observe/run_observer.py": "when training began",
    "mdgan/observe/trackers.py": "MLflow wants it with each value",
    "mdgan/observe/watch.py": "how long ago a file was written, at the first look",
    "mdgan/storage/fence.py": "since when another server has had the run",
}


def test_the_wall_clock_is_asked_for_what_people_read_alone() -> None:
    asks = re.compile(r"\btime\.time(_ns)?\(|\.created\b")
    results = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "mdgan").rglob("*.py")
        if asks.search(path.read_text(encoding="utf-8"))
    }
    shown = {"mdgan/cli/logs.py"}  # the time before each line
    assert results == READ_BY_PEOPLE.keys() | shown


def test_training_while_the_clock_is_set_to_and_fro(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["train", "--transport", "memory", "--world-size", "3", "--iterations", "6"]
    flags += ["--log-interval", "1", "--checkpoint-interval", "2", "--threads", "1"]
    quiet = run_here(*flags, "--out", "quiet", cwd=tmp_path)
    assert quiet.status == 0, quiet
    real, jumps = time.time, itertools.cycle([0, 3600, -3600])
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: real() + next(jumps))
        jumping = run_here(*flags, "--out", "jumping", cwd=tmp_path)
    assert jumping.status == 0, jumping
    assert generator_bytes(tmp_path / "jumping") == generator_bytes(tmp_path / "quiet")
    seconds = [record["seconds"] for record in read_metrics(tmp_path / "jumping")]
    assert seconds == sorted(seconds)
    assert 0 <= seconds[0] <= seconds[-1] < 600


def test_a_run_is_quiet_for_as_long_as_it_is_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        wall, steady = 1e9, 50.0

        def time(self) -> float:
            return self.wall

        def monotonic(self) -> float:
            return self.steady

    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    files = RunFiles(tmp_path / "run")
    files.losses(1, 0.1, 0.5, 0.5)
    for path in files.path.rglob("*.json*"):
        os.utime(path, (1e9 - 5, 1e9 - 5))
    run = WatchedRun(files.path)
    assert run.quiet_seconds == 5
    clock.wall += 3600
    clock.steady += 10
    run.update()
    assert run.quiet_seconds == 15
    clock.wall -= 7200  # and the run writes, at a time before its last
    os.utime(files.path / "run.json", (clock.wall, clock.wall))
    run.update()
    assert run.quiet_seconds == 0
    clock.steady += 40
    run.update()
    assert run.quiet_seconds == 40


def test_a_log_gets_its_lines_though_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, steady = time.time, [100.0]
    own = SimpleNamespace(
        monotonic=lambda: steady[0], strftime=time.strftime, localtime=time.localtime
    )
    monkeypatch.setattr(logs, "time", own)
    log = logging.getLogger("mdgan.test")
    try:
        logs.show_logs()
        logs.begin_long_command(str(tmp_path / "log"))
        log.info("iteration 1/9", extra={"shown": "live"})
        steady[0] += 60
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: wall() - 3600)
            log.info("iteration 2/9", extra={"shown": "live"})
    finally:
        logs.show_logs()
    assert (tmp_path / "log").read_text().count("iteration") == 2
