"""Environment variables that must be set before torch is loaded, and the end of the program."""

import os
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from mdgan.cli import options
from mdgan.cli.options import prepare_environment, prepare_for_load
from mdgan.launch.settings import LaunchSettings
from mdgan.settings import machine
from mdgan.spelling import spelled
from tests.processes import run_here

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def waits(
    monkeypatch: pytest.MonkeyPatch, many_processes: bool | None, **values: str
) -> dict[str, str]:
    """What is set where a user has set something."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", {"XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"], **values})
        prepare_environment(many_processes=many_processes)
        return {name: os.environ[name] for name in NAMES if name in os.environ}


def test_threads_of_several_processes_alone_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, True) == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert waits(monkeypatch, False) == waits(monkeypatch, None) == {}
    for many_processes in (False, True):  # what the user has set stays
        for own in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "77"}):
            assert waits(monkeypatch, many_processes, **own).items() >= own.items()


def waits_by_load(
    monkeypatch: pytest.MonkeyPatch, taken: float, settings: LaunchSettings, **values: str
) -> tuple[dict[str, str], str | None]:
    """What is set, and said, where other programs keep some of four cores busy."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", dict(values))
        patched.setattr(options, "num_cores", lambda: 4)
        patched.setattr(options, "cores_taken", lambda: taken)
        said = spelled(prepare_for_load(settings) or "") or None
        return {name: os.environ[name] for name in NAMES if name in os.environ}, said


@pytest.mark.parametrize(("taken", "free"), [(0.6, 3), (1.4, 3), (2.6, 1), (4.1, 1)])
def test_as_many_threads_are_proposed_as_cores_are_free(
    monkeypatch: pytest.MonkeyPatch, taken: float, free: int
) -> None:
    _, said = waits_by_load(monkeypatch, taken, LaunchSettings())
    assert f"keep {taken} of 4 cores busy" in str(said)
    assert f"--threads {free} is usually faster" in str(said)


def test_a_system_that_does_not_tell_its_load_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(percpu: bool) -> None:
        raise FileNotFoundError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert machine.cores_taken() == 0.0


@pytest.mark.parametrize("threads", ["auto", 3])
def test_threads_wait_passively_on_a_busy_machine_and_the_user_hears_it(
    monkeypatch: pytest.MonkeyPatch, threads: int | str
) -> None:
    given = LaunchSettings.read({"threads": threads})
    variables, said = waits_by_load(monkeypatch, 3.9, given)
    assert variables == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert said == (
        "other programs keep 3.9 of 4 cores busy, so threads wait passively; "
        "--threads 1 is usually faster then, with other last bits"
    )
    assert waits_by_load(monkeypatch, 0.2, given) == ({}, None)


def test_load_changes_nothing_where_no_threads_wait_or_the_user_has_said_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for flags in ({"threads": 1}, {"device": "cuda"}):
        assert waits_by_load(monkeypatch, 4.0, LaunchSettings.read(flags)) == ({}, None)
    for given in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "77"}):
        assert waits_by_load(monkeypatch, 4.0, LaunchSettings(), **given) == (given, None)


def test_a_run_says_once_that_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(options, "num_cores", lambda: 2)
    monkeypatch.setattr(options, "cores_taken", lambda: 2.0)
    flags = ["--iterations", "1", "--eval-interval", "0", "--sample-interval", "0"]
    result = run_here("standalone", *flags, "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    busy = [line for line in result.errors.splitlines() if "cores busy" in line]
    assert len(busy) == 1
    assert "mdgan: warning: other programs keep 2.0 of 2 cores busy" in busy[0]


def test_cores_taken_counts_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeping disks and programs that give way (`nice`) do not; neighbours of the machine do."""
    core = namedtuple("core", "user nice system idle iowait steal")
    before = [core(1, 2, 3, 4, 5, 6)] * 4
    others = core(1.05, 2, 3.01, 4.04, 5, 6)
    polite, stolen, foreign = (1, 2.09, 3, 4, 5.01, 6), (1, 2, 3, 4, 5, 6.08), (9, 2, 3, 4, 5, 6)
    after = [others, core(*polite), core(*stolen), core(*foreign)]
    times, clock = iter([before, after]), iter([7.0, 7.1])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(times))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert machine.cores_taken() == pytest.approx(1.4)


def test_a_defect_is_shown_and_python_is_not_taken_apart() -> None:
    """At its end Python would print pages about what native libraries have leaked."""
    program = (
        "import atexit, mdgan.cli\n"
        "atexit.register(print, 'taken apart')\n"
        "def fail(): raise ZeroDivisionError('a defect')\n"
        "mdgan.cli.main = fail\n"
        "mdgan.cli.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert done.stderr.endswith("ZeroDivisionError: a defect\n")
