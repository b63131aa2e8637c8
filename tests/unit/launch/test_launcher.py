"""The launcher's children, and signals that come at the worst moment."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from mdgan.launch.launcher import SERVER_NAME, ChildProcesses


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
