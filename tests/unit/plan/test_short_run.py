"""Work in forks: results in order, and failures in one line."""

import os
import signal
import time
from functools import partial

import pytest

from mdgan.errors import BadInput
from mdgan.plan.short_run import ForkFailed, at_once


def later(seconds: float, text: str) -> str:
    time.sleep(seconds)
    return text


def test_results_come_in_the_order_of_the_works() -> None:
    assert at_once([partial(later, 0.2, "first"), partial(later, 0.0, "second")]) == [
        "first",
        "second",
    ]


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: os._exit(9), "was killed"),
    ],
    ids=["raises", "dies"],
)
def test_failure_ends_the_others(request: pytest.FixtureRequest, work: object, says: str) -> None:
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which forks take over
    request.addfinalizer(partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    with pytest.raises(ForkFailed, match=says):
        at_once([partial(later, 60.0, "never"), work])  # type: ignore[list-item] # a lambda
    assert time.monotonic() - begin < 30


def test_what_the_user_can_mend_is_told_as_it_is() -> None:
    def refuse() -> None:
        raise BadInput("--flag 3: too small")

    with pytest.raises(BadInput, match=r"^--flag 3: too small$"):
        at_once([refuse])
