"""What must be said before torch is loaded, and how the program ends."""

import os
import subprocess
import sys

import pytest

from mdgan.cli.options import prepare_environment

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def waits(
    monkeypatch: pytest.MonkeyPatch, many_processes: bool | None, **given: str
) -> dict[str, str]:
    """What is set where a user has set something."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", dict(given))
        prepare_environment(many_processes=many_processes)
        return {name: os.environ[name] for name in NAMES if name in os.environ}


def test_threads_of_one_process_wait_as_openmp_does_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert waits(monkeypatch, False) == {}


def test_threads_of_several_processes_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, True) == {"OMP_WAIT_POLICY": "PASSIVE"}


def test_a_process_that_only_starts_others_sets_nothing_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert waits(monkeypatch, None) == {}


@pytest.mark.parametrize("many_processes", [False, True])
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, many_processes: bool) -> None:
    active = {"OMP_WAIT_POLICY": "ACTIVE"}
    assert waits(monkeypatch, many_processes, **active) == active
    spins = {"GOMP_SPINCOUNT": "77"}
    assert waits(monkeypatch, many_processes, **spins).items() >= spins.items()


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
