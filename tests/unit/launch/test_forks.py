"""Work in forks: what it tells, and failures in one line."""

import os
import signal
import threading
import time
from functools import partial

import pytest

from mdgan.errors import BadInput, Interrupted
from mdgan.launch.forks import ForkFailed, ForkParent, in_forks


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
    heard: dict[int, object] = {}
    works = [partial(later, seconds=0.2, text="first"), partial(later, seconds=0, text="second")]
    in_forks(works, heard.__setitem__)
    assert heard == {0: ["first", 1.5], 1: ["second", 1.5]}


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
