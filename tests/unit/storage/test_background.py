"""Files are written beside training, and the training thread hears of failures."""

import errno
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from mdgan.storage.background import BackgroundWriter

LONG = 60.0
"""Seconds in which any machine writes next to nothing."""


@pytest.fixture
def writer() -> Iterator[BackgroundWriter]:
    writer = BackgroundWriter()
    yield writer
    writer.close(LONG)


def never(error: OSError) -> None:
    raise AssertionError(f"not expected: {error}")


def test_a_slow_disk_costs_jobs_and_no_time(writer: BackgroundWriter) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []
    told: list[int | None] = []

    def slow() -> None:
        begun.set()
        assert go_on.wait(LONG)
        done.append("slow")

    assert writer.submit_newest(slow, never)
    assert begun.wait(LONG)
    assert writer.submit_newest(lambda: done.append("too old"), lambda e: told.append(e.errno))
    assert writer.submit_newest(lambda: done.append("newest"), never)
    assert told == [errno.EAGAIN]
    assert not writer.drain(0.01)
    assert done == []
    go_on.set()
    assert writer.drain(LONG)
    assert done == ["slow", "newest"]


@pytest.mark.parametrize("in_handler", [False, True])
def test_any_other_failure_reaches_the_thread_that_trains_once(
    writer: BackgroundWriter, in_handler: bool
) -> None:
    def fail() -> None:
        if in_handler:
            raise OSError(errno.EIO, "broken")
        raise ZeroDivisionError

    def handle(error: OSError) -> None:
        raise ZeroDivisionError

    assert writer.submit_newest(fail, handle)
    with pytest.raises(ZeroDivisionError):
        writer.drain(LONG)
    assert writer.drain(LONG)
    assert writer.submit_newest(lambda: None, never)


def test_closing_finishes_what_was_begun() -> None:
    writer, done = BackgroundWriter(), list[int]()
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        done.append(1)

    assert writer.submit_newest(slow, never)
    assert begun.wait(LONG)
    assert writer.submit_newest(lambda: done.append(2), never)
    assert writer.close(LONG)
    assert done == [1, 2]
    assert not writer.submit_newest(lambda: done.append(3), never)
    assert writer.close(LONG)
    assert done == [1, 2]


def test_closing_does_not_wait_for_ever() -> None:
    writer, go_on = BackgroundWriter(), threading.Event()

    def stuck() -> None:
        go_on.wait()

    assert writer.submit_newest(stuck, never)
    assert not writer.close(0.05)
    go_on.set()
    assert writer.close(LONG)


def test_a_state_is_not_kept_after_it_was_written(writer: BackgroundWriter) -> None:
    """States are large."""

    class State:
        def write(self) -> None:
            pass

    state = State()
    watch = weakref.ref(state)
    assert writer.submit_newest(state.write, never)
    assert writer.drain(LONG)
    del state
    gc.collect()
    assert watch() is None
