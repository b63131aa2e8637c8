"""How many threads read ahead and how far: more while training waits for data, fewer afterwards.

After ParaGAN's congestion-aware tuner (section 4.1): a sliding window of latencies; above a
threshold threads and buffer grow, below it they are given back. The paper gives neither the window
nor the threshold nor the steps; those here are ours (docs/decisions.md).
"""

from collections import deque
from typing import NamedTuple

from mdgan.settings.climber import HillClimber

WINDOW = 8
"""Batches over which latencies are averaged, and that each step is given to show what it does."""
THRESHOLD = 0.05
"""Of the time from one batch to the next, the share that training may wait for data."""
PATIENCE = 32  # batches without congestion after which a step is taken back
MOST_PATIENCE = 1024


class Range(NamedTuple):
    """The whole numbers from `least` to `most`; equal ones are a fixed number."""

    least: int
    most: int


class Tuner:
    """Decides by how long training waited for its last batches.

    A step up doubles threads and buffer, one down takes that back. If congestion comes back soon
    after a step down, the next one is tried only after twice as many batches; so a storage that is
    always slow does not make training wait again and again.
    """

    def __init__(self, threads: Range, buffer: Range) -> None:
        steps = [(threads.least, buffer.least)]
        while steps[-1] != (threads.most, buffer.most):
            num_threads, size = steps[-1]
            steps.append((min(2 * num_threads, threads.most), min(2 * size, buffer.most)))
        self._least = steps[0]
        self._climber = HillClimber(steps, gain=0.0)
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # waiting, training
        self._calm = 0
        self._patience = PATIENCE
        self._since_down: int | None = None

    @property
    def threads(self) -> int:
        """How many threads should read."""
        return self._climber.candidate[0]

    @property
    def buffer(self) -> int:
        """How many samples should be read ahead for each worker."""
        return self._climber.candidate[1]

    @property
    def latency(self) -> float:
        """The share of the window's time that training waited for data, in [0, 1].

        The longest wait does not count: a single stall is over before more threads could help.
        """
        waited = sum(sorted(waited for waited, _ in self._window)[:-1])
        passed = waited + sum(trained for _, trained in self._window)
        return waited / passed if passed > 0 else 0.0

    def note(self, waited_seconds: float, passed_seconds: float) -> None:
        """One more batch was drawn."""
        self._window.append((waited_seconds, max(0.0, passed_seconds - waited_seconds)))
        if self._since_down is not None:
            self._since_down += 1
        if len(self._window) < WINDOW:
            return
        before, latency = self._climber.candidate, self.latency
        if latency > THRESHOLD:
            self._calm = 0
            self._climber.note(1 - latency)
            if self._since_down is not None and self._climber.candidate != before:
                too_early = self._since_down <= self._patience
                self._patience = min(2 * self._patience, MOST_PATIENCE) if too_early else PATIENCE
                self._since_down = None
        else:
            self._calm += 1
            if before != self._least and self._calm >= self._patience:
                self._climber.back()
                self._calm = self._since_down = 0
        if self._climber.candidate != before:
            self._window.clear()
