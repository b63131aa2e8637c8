"""A clock that a test moves, so that no honest host is late on a slow machine."""

import time

import pytest

from mdgan.engine.server import admission, collecting, hosts, peers
from tests.processes import wait_until
from tests.unit.engine.played import Played
from tests.unit.engine.stage import Stage

_SHORT_SECONDS = 0.02
"""Far below what any host may owe an answer for."""


class HandClock:
    """Takes the place of the clock by which the server waits for hosts and lets them back in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = time.monotonic()
        for module in (admission, collecting, hosts, peers):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self._now

    def after_answer(self, made: Stage, honest: Played, silent: int, seconds: float) -> int:
        """An honest host answers its next question, and time passes.

        It passes once the server has that answer. If the server still waits for a silent host,
        it waits so many seconds; if not, an instant.

        Returns:
            The iteration.
        """
        question = honest.take(honest.question)
        i = question.iteration
        wait_until(lambda: bool(made.peers.num_owed(honest.number, i)), f"question {i} is asked")
        honest.send(honest.reply_to(question))
        wait_until(lambda: not made.peers.num_owed(honest.number, i), f"answer {i} is taken")
        self._now += seconds if made.peers.num_owed(silent, i) else _SHORT_SECONDS
        return i
