"""A Python program copes with a child process that sends more than it can take."""

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.interface import child
from mdgan.interface.child import RunFailed, output_folder, run_child
from mdgan.interface.messages import ChildEvent, LineLogged, TrainingRequest, send_event
from mdgan.interface.settings import refuses_in_python
from mdgan.observe.events import IterationLogged


class Restless:
    """Serves as a `subprocess.Popen` of a child that sends events until it is asked to stop."""

    stdin = io.BytesIO()
    holds_output = False  # as a program that the user's own code has started

    def __init__(self, _command: object, *, pass_fds: tuple[int], **_options: object) -> None:
        read, self._prints = os.pipe()
        self.stdout = os.fdopen(read)
        self._pipe = os.dup(pass_fds[0])
        self._asked = threading.Event()
        threading.Thread(target=self._tell).start()

    def _tell(self) -> None:
        number = 0
        while not self._asked.is_set():
            number += 1
            send_event(self._pipe, IterationLogged(number, {}))
        os.write(self._prints, b"mine\n")
        send_event(self._pipe, LineLogged("failed: rank 1: why\nmore", is_warning=True))
        if not self.holds_output:
            os.close(self._prints)
        os.close(self._pipe)

    def terminate(self) -> None:
        self._asked.set()

    def poll(self) -> int:
        return 1

    def wait(self) -> int:
        return 1


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is shown of such a child."""
    tools = SimpleNamespace(Popen=Restless, PIPE=None, STDOUT=None)
    monkeypatch.setattr(child, "subprocess", tools)
    return []


def at_third(act: Callable[[], bool]) -> Callable[[ChildEvent], bool]:
    return lambda event: isinstance(event, IterationLogged) and event.iteration >= 3 and act()


def test_a_child_that_never_pauses_is_stopped(restless: list[Any]) -> None:
    run_child(TrainingRequest({}), show=restless.append, follow=at_third(lambda: True))
    warned = LineLogged("failed: rank 1: why\nmore", is_warning=True)
    assert sorted(restless, key=str) == [warned, "mine\n"]
    stop = threading.Event()

    def ask() -> bool:
        stop.set()
        return False

    run_child(TrainingRequest({}), show=restless.append, follow=at_third(ask), stop=stop)


def test_a_program_that_goes_on_after_the_child_is_not_waited_for(
    restless: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Restless, "holds_output", True)
    run_child(TrainingRequest({}), show=restless.append, follow=at_third(lambda: True))
    assert "mine\n" in restless


@pytest.mark.usefixtures("restless")
def test_who_interrupts_again_waits_for_no_reader_of_lines() -> None:
    shown: list[object] = []

    def show(line: object) -> None:
        shown.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child(TrainingRequest({}), show=show, follow=at_third(lambda: True))
    assert len(shown) == 2


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, GeneratorExit])
def test_what_a_callback_raises_ends_the_child_first(
    restless: list[Any], error: type[BaseException]
) -> None:
    calls: list[ChildEvent] = []

    def follow(event: ChildEvent) -> bool:
        calls.append(event)
        raise error

    with pytest.raises(error):
        run_child(TrainingRequest({}), show=restless.append, follow=follow)
    assert len(calls) == 1
    assert "mine\n" in restless


def test_a_failure_names_the_last_warning(
    restless: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Restless.__init__

    def at_once(self: Restless, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        self.terminate()

    monkeypatch.setattr(Restless, "__init__", at_once)
    with pytest.raises(RunFailed, match=r"^ended with status 1: failed: rank 1: why$"):
        run_child(TrainingRequest({}), show=restless.append)


def test_new_runs_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with output_folder(None, "own") as first, output_folder(None, "own") as second:
        assert first != second
        assert first.is_dir()
        assert second.is_dir()
    assert not first.exists()
    Path("runs").rmdir()
    Path("runs").symlink_to("unmounted")
    with (
        pytest.raises(BadInput, match=r"^out=runs/own-.*: cannot write there .*name another place"),
        refuses_in_python(),
        output_folder(None, "own"),
    ):
        pass
