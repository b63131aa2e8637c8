"""What a system lacks: Linux with those parts taken away stands for macOS, and for Windows."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mdgan import system
from mdgan.errors import BadInput, Interrupted
from mdgan.launch.forks import ForkFailed, ForkParent, in_forks
from mdgan.plan import short_run
from mdgan.settings.machine import cores_taken, num_cores

ON_WINDOWS = "import sys; sys.platform = 'win32'; import mdgan.__main__"


def test_windows_is_refused_before_anything_is_imported() -> None:
    refused = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert "use WSL" in line


@pytest.mark.parametrize(
    ("is_linux", "chosen", "forks_them"),
    [(True, "", True), (False, "", False), (True, "spawn", False), (False, "fork", True)],
)
def test_what_starts_processes(
    is_linux: bool, chosen: str, forks_them: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "IS_LINUX", is_linux)
    monkeypatch.delenv(system.START, raising=False)
    if chosen:
        monkeypatch.setenv(system.START, chosen)
    assert system.may_fork() == forks_them


def test_a_system_without_the_parts_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as listening:
        user = system.peer_user(ours)
        for module, name in (
            *((os, "sched_getaffinity"), (os, "fork")),
            *((socket, "SO_PEERCRED"), (socket, "TCP_DEFER_ACCEPT")),
        ):
            monkeypatch.delattr(module, name)
        monkeypatch.setattr(Path, "read_text", no_such_file)
        monkeypatch.setattr(system, "IS_LINUX", False)
        assert system.peer_user(ours) == user
        system.hold_silent_callers(listening, 5)
    assert num_cores() == len(system.cores_available()) == os.cpu_count()
    assert 0 <= cores_taken(0.01) <= num_cores()
    assert system.processor_name()
    assert system.unknown_user() is None
    assert not any((system.may_fork(), system.keep_freed_memory(), system.ask_for_long_slices()))


def no_such_file(path: Path, *_: object, **__: object) -> str:
    raise FileNotFoundError(path)


@pytest.fixture
def without_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(system.START, "spawn")


def refuse(_: ForkParent) -> None:
    raise BadInput("--flag 3: too small")


def fail(_: ForkParent) -> None:
    raise ZeroDivisionError("one\nline")


@pytest.mark.usefixtures("without_forks")
def test_a_server_is_asked_in_a_thread() -> None:
    heard: dict[int, object] = {}

    def ask(parent: ForkParent) -> None:
        parent.end_with_it()
        parent.tell([threading.current_thread() is threading.main_thread(), 1.5])

    in_forks([ask], heard.__setitem__)
    assert heard == {0: [False, 1.5]}
    with pytest.raises(BadInput, match=r"^--flag 3: too small$"):
        in_forks([refuse], heard.__setitem__)
    with pytest.raises(ForkFailed, match=r"^ZeroDivisionError: one line$"):
        in_forks([fail], heard.__setitem__)


@pytest.mark.usefixtures("without_forks")
def test_a_thread_that_answers_too_late_says_nothing() -> None:
    interrupted, late = threading.Event(), threading.Event()
    ended = threading.Event()
    interrupted.set()

    def answer(parent: ForkParent) -> None:
        late.wait()
        try:
            for _ in range(2):  # the first may find its reader still there
                parent.tell("too late")
        finally:
            ended.set()

    with pytest.raises(Interrupted):
        in_forks([answer], lambda *_: None, interrupted)
    late.set()
    assert ended.wait(10)


@pytest.mark.usefixtures("without_forks")
def test_no_plan_is_made_without_forks() -> None:
    with pytest.raises(BadInput, match=r"plays in forks.*use Linux or WSL"):
        short_run.play(None, None, None, (1, 0.1))  # type: ignore[arg-type] # not looked at
