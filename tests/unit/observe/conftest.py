"""A clock for observers."""

import pytest

from mdgan.observe import progress, run_observer, tracer


class Clock:
    """A clock that goes only when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1.7e9 + self.now

    __call__ = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (progress, run_observer, tracer):
        monkeypatch.setattr(module, "time", made)
    return made
