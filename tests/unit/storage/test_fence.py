"""Of all servers that ever claimed a run, only one may write; it writes during training."""

import errno
import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from mdgan.storage.background import BackgroundWriter
from mdgan.storage.fence import Fence, Fenced
from tests.unit.storage.small import all_files


def test_the_last_to_claim_may_write(tmp_path: Path) -> None:
    first = Fence.claim(tmp_path)
    first.check()
    second = Fence.claim(tmp_path)
    assert (first.generation, second.generation) == (1, 2)
    second.check()
    with pytest.raises(Fenced, match="generation 2 has taken over") as refused:
        first.check()
    assert f"process {os.getpid()}" in str(refused.value)
    assert os.uname().nodename in str(refused.value)
    third = Fence.claim(tmp_path)
    with pytest.raises(Fenced, match="generation 3"):
        first.check()
    with pytest.raises(Fenced, match="generation 3"):
        second.check()
    third.check()
    assert all_files(tmp_path) == {f"generation-{number}.json" for number in (1, 2, 3)}


def test_gaps_numbers_beyond_nine_and_foreign_files(tmp_path: Path) -> None:
    for name in ("generation-9.json", "generation-10.json", "generation-x.json", "generation-77"):
        (tmp_path / name).write_text("{}")
    assert Fence.claim(tmp_path).generation == 11


@pytest.mark.parametrize("content", [b"", b"[]", b'{"host": "a"}', b"\xff", b"[" * 5000])
def test_the_server_that_took_over_may_be_unknown(tmp_path: Path, content: bytes) -> None:
    fence = Fence.claim(tmp_path)
    (tmp_path / "generation-2.json").write_bytes(content)
    with pytest.raises(Fenced, match=r"^generation 2 has taken over$"):
        fence.check()


CLAIM = """
import sys
from pathlib import Path
from mdgan.storage.fence import Fence
sys.stdin.readline()
for _ in range(40):
    print(Fence.claim(Path(sys.argv[1])).generation)
"""


def test_processes_that_race_get_generations_of_their_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLAIM, str(tmp_path)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    result = [[int(line) for line in racer.communicate(timeout=300)[0].split()] for racer in racers]
    assert sorted(number for mine in result for number in mine) == list(range(1, 121))
    assert all(mine == sorted(mine) for mine in result)
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_is_gone_is_no_other_server(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    fence = Fence.claim(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        fence.check()
    (tmp_path / "run").mkdir()
    Fence.claim(tmp_path / "run")  # a new run is started there
    with pytest.raises(OSError, match="another run is there now"):
        fence.check()
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(tmp_path / "away", tmp_path / "run")
    fence.check()


def test_a_claim_that_is_withdrawn_was_never_made(tmp_path: Path) -> None:
    first = Fence.claim(tmp_path)
    Fence.claim(tmp_path).withdraw()
    first.check()
    assert all_files(tmp_path) == {"generation-1.json"}


def test_a_full_disk_makes_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            Fence.claim(tmp_path)
    assert all_files(tmp_path) == set()
    assert Fence.claim(tmp_path).generation == 1


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

    writer.submit_newest(slow, never)
    assert begun.wait(LONG)
    writer.submit_newest(lambda: done.append("too old"), lambda e: told.append(e.errno))
    writer.submit_newest(lambda: done.append("newest"), never)
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

    writer.submit_newest(fail, handle)
    with pytest.raises(ZeroDivisionError):
        writer.drain(LONG)
    assert writer.drain(LONG)
    writer.submit_newest(lambda: None, never)


def test_closing_finishes_what_was_begun() -> None:
    writer, done = BackgroundWriter(), list[int]()
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        done.append(1)

    writer.submit_newest(slow, never)
    assert begun.wait(LONG)
    writer.submit_newest(lambda: done.append(2), never)
    assert writer.close(LONG)
    assert done == [1, 2]
    writer.submit_newest(lambda: done.append(3), never)
    assert writer.close(LONG)
    assert done == [1, 2]


def test_closing_does_not_wait_for_ever() -> None:
    writer, go_on = BackgroundWriter(), threading.Event()

    def stuck() -> None:
        go_on.wait()

    writer.submit_newest(stuck, never)
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
    writer.submit_newest(state.write, never)
    assert writer.drain(LONG)
    del state
    gc.collect()
    assert watch() is None
