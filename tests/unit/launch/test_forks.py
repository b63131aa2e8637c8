"""Processes: forks, the launcher's children, and their use of the machine."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from mdgan.errors import BadInput, Interrupted
from mdgan.launch.forks import ForkFailed, ForkParent, in_forks
from mdgan.launch.launcher import SERVER_NAME, ChildProcesses


def later(parent: ForkParent, seconds: float, text: str) -> None:
    time.sleep(seconds)
    parent.tell([text, 1.5])


def fail(_: ForkParent) -> None:
    raise ZeroDivisionError("one\nline")


def refuse(_: ForkParent) -> None:
    raise BadInput("--flag 3: too small")


def ignore(_number: int, _said: object) -> None:
    pass


def test_what_each_work_tells() -> None:
    traffic: dict[int, object] = {}
    works = [partial(later, seconds=0.2, text="first"), partial(later, seconds=0, text="second")]
    in_forks(works, traffic.__setitem__)
    assert traffic == {0: ["first", 1.5], 1: ["second", 1.5]}


@pytest.mark.parametrize(
    ("work", "kind", "says"),
    [
        (fail, ForkFailed, "^ZeroDivisionError: one line$"),
        (lambda _: os._exit(9), ForkFailed, "was killed"),
        (refuse, BadInput, r"^--flag 3: too small$"),
    ],
    ids=["raises", "dies", "refuses"],
)
def test_failure_ends_the_others(
    request: pytest.FixtureRequest, work: object, kind: type[Exception], says: str
) -> None:
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which forks take over
    request.addfinalizer(partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    never = partial(later, seconds=60.0, text="never")
    with pytest.raises(kind, match=says):
        in_forks([never, work], ignore)  # type: ignore[list-item] # a lambda
    assert time.monotonic() - begin < 30


def test_giving_up() -> None:
    interrupted = threading.Event()
    interrupted.set()
    with pytest.raises(Interrupted):
        in_forks([partial(later, seconds=60.0, text="never")], ignore, interrupted)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restores this process's handlers, which a launcher keeps until it ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_as_children_end(handlers: None, number: signal.Signals) -> None:
    def end_with_a_signal() -> None:
        os.kill(os.getppid(), number)

    before = set(psutil.Process().children())
    work = [(name, end_with_a_signal) for name in (SERVER_NAME, "rank 1", "rank 2")]
    statuses = {ChildProcesses(has_standbys=False).run(work) for _ in range(3)}
    assert statuses <= {0, 128 + number}
    assert set(psutil.Process().children()) == before


FAULTS = """
import resource
import numpy
from mdgan.system import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

assert keep_freed_memory()
kept = []
for _ in range(10):
    before = faults()
    kept = [numpy.ones(4 << 20) for _ in range(2)]
    kept.clear()
    print(faults() - before)
"""


INTERRUPTED_IN_A_HOOK = """
import os, signal
from mdgan.launch.forks import start

os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    start(signal.pause)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.killpg(0, signal.SIGKILL)
"""


def test_ctrl_c_while_a_process_forks_is_not_lost() -> None:
    """Python only prints what a handler raises in a hook of a fork."""
    command = [sys.executable, "-c", INTERRUPTED_IN_A_HOOK]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, start_new_session=True
    )
    assert (result.stdout, result.stderr) == ("interrupted\n", "")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
@pytest.mark.slow
def test_freed_memory_is_used_again() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=300, check=True
    )
    first, *others = map(int, ended.stdout.split())
    assert first > 1000, "64 MB, in pages of 4 kB or, where the kernel has them, larger ones"
    assert max(others) < first / 10
