"""Runs mdgan as users do: real processes, watched until the last one has ended."""

import io
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import psutil

from mdgan.cli import main
from tests import forks

MDGAN = forks.MDGAN
REPOSITORY = Path(__file__).resolve().parent.parent

QUICK = ["--iterations", "12", "--batch-size", "8", "--threads", "1", "--sample-interval", "0"]
"""Flags of a run that is over soon and equal, bit for bit, however it is spread."""


QUICK_SETTINGS: dict[str, Any] = {
    "iterations": 12,
    "batch_size": 8,
    "threads": 1,
    "sample_interval": 0,
}
"""The same for `mdgan.train`."""

Process = subprocess.Popen[str] | forks.ForkedCommand
"""A command that was started."""

_started: list[Process] = []


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, as a user's shell would have it.

    How threads wait is said, so that it does not depend on what else the machine does.
    """
    unchanged = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMP_", "TORCH", "TRITON", "PYTEST"))
    }
    return {**unchanged, "OMP_WAIT_POLICY": "PASSIVE", **changes}


def run(*arguments: str, cwd: Path, timeout: float = 300, **changes: str) -> "Finished":
    """Runs `mdgan` with arguments to its end."""
    return finish(start([*MDGAN, *arguments], cwd, **changes), timeout)


def run_here(*arguments: str, cwd: Path) -> "Finished":
    """Runs a command that needs one process in this one, which has imported torch already."""
    forks.read_digits_once()
    output, errors = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with chdir(cwd), redirect_stdout(output), redirect_stderr(errors):
            main(arguments)
    except SystemExit as ended:
        return Finished(int(str(ended.code)), output.getvalue(), errors.getvalue())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    raise AssertionError("main() ends with an exit status")


class Finished:
    """What a command left behind: `status`, `output` and `errors`."""

    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status = status
        self.output = output
        self.errors = errors

    def __repr__(self) -> str:
        return f"status {self.status}\n--- output\n{self.output}\n--- errors\n{self.errors}"


def start(command: list[str], cwd: Path, **changes: str) -> Process:
    """Starts a command in its own session; mdgan in a fork that need not import torch."""
    network, ours = "", command
    if command[:3] == ["ip", "netns", "exec"]:
        network, ours = command[3], command[4:]
    if ours[: len(MDGAN)] != MDGAN:
        return start_anew(command, cwd, **changes)
    variables = environment(**changes)
    forked = forks.ForkedCommand(ours[len(MDGAN) :], cwd, variables, network=network)
    _started.append(forked)
    return forked


def start_anew(command: list[str], cwd: Path, **changes: str) -> "subprocess.Popen[str]":
    """Starts a command in its own session, as a user's shell would."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _started.append(process)
    return process


def end_all() -> None:
    """Ends the commands that a failed test has not waited for, and prints what they said."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.stdout is None or process.stdout.closed:
            continue  # the test has read it all
        output, errors = process.communicate()
        print(Finished(process.wait(), output, errors))


def finish(process: Process, timeout: float = 300) -> Finished:
    """Waits for a command, and insists that it leaves no process behind."""
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise AssertionError(f"not over in {timeout} s:\n{output}\n{errors}") from None
    assert process.returncode is not None
    result = Finished(process.returncode, output, errors)
    deadline = time.monotonic() + 60
    while (orphans := session_members(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)  # what was killed takes a moment to be gone
    if orphans:
        os.killpg(process.pid, signal.SIGKILL)
    assert not orphans, f"left behind: {orphans}\n{result}"
    return result


def ended_well(result: Finished, folder: Path, iterations: int = 12) -> bytes:
    """The generator of a run that has done all its iterations."""
    assert result.status == 0, result
    assert "Traceback" not in result.errors
    status = read_status(folder)
    assert (status["state"], status["iteration"]) == ("finished", iterations)
    return generator_bytes(folder)


def check_refused(result: Finished, *parts: str, lines: int | None = None) -> None:
    """Checks that a command was refused as bad input, in so many lines, which contain texts."""
    assert result.status == 2, result
    assert "Traceback" not in result.errors
    assert lines is None or result.errors.count("\n") == lines, result
    for part in parts:
        assert part in result.errors, result


def session_members(leader: int) -> list[int]:
    """The living processes of a session; dead ones that are not reaped yet do not count."""
    members = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.pid != leader and os.getsid(process.pid) == leader:
                members.append(process.pid)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return members


def wait_until(
    condition: Callable[[], bool], awaited: str | Callable[[], str], seconds: float = 300
) -> None:
    """Waits for something to become true; `what` is told, or called and told, if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"not within {seconds} s: {awaited if isinstance(awaited, str) else awaited()}"
            )
        time.sleep(0.02)  # between two looks, not instead of one


def kill_at_one_blow(doomed: Sequence[psutil.Process]) -> None:
    """Ends processes as a cut of their power does: none may notice that another is gone."""
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for process in doomed:
            with suppress(psutil.NoSuchProcess):
                act(process)


def training(folder: Path, *arguments: str, name: str = "run") -> "Training":
    """A run in the background that has begun to iterate."""
    process = start([*MDGAN, *arguments, "--out", name], folder)
    begun = Training(process, folder / name)
    wait_until(lambda: bool(begun.metrics()) or process.poll() is not None, "first iterations")
    assert process.poll() is None, finish(process)
    return begun


class Training:
    """A run under way."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self.folder = folder

    def metrics(self) -> list[dict[str, Any]]:
        """What it has recorded so far."""
        return read_metrics(self.folder)

    def server(self) -> int:
        """The server's process."""
        return int(read_status(self.folder)["process"])

    def hosts(self) -> list[int]:
        """The host processes, in the order of their ranks."""
        children = psutil.Process(self.process.pid).children()
        return sorted(child.pid for child in children if child.pid != self.server())

    def has_reached(self, iteration: int) -> bool:
        """Whether an iteration is recorded."""
        return any(record["iteration"] >= iteration for record in self.metrics())


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """What a run has recorded of its iterations."""
    return [record for record in read_records(folder) if "event" not in record]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a run's metrics.jsonl."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    # A line that is being written may be seen in part.
    complete, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in complete.splitlines()]


def read_events(folder: Path, name: str) -> list[dict[str, Any]]:
    """A run's events of one name."""
    return [record for record in read_records(folder) if record.get("event") == name]


def read_status(folder: Path) -> dict[str, Any]:
    """A run's run.json."""
    status: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return status


def generator_bytes(folder: Path) -> bytes:
    """A run's final generator as it lies on disk; equal bytes are equal bits."""
    return (folder / "generator.safetensors").read_bytes()


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_cleanly(folder: Path, *arguments: str) -> Finished:
    """Runs a command in this process, which must show no traceback."""
    result = run_here(*arguments, cwd=folder)
    assert "Traceback" not in result.errors, result
    return result
