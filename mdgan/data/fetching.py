"""Samples fetched ahead: threads read what a shard draws next while training computes.

It pays where each sample is read when it is drawn (`Partitioner.read_one_by_one`); a data set in
memory has nothing to wait for. Which samples come next depends on the shard alone, so neither the
number of threads nor what they have already read changes any result.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf, prod
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor

from mdgan.data.readable import Readable
from mdgan.data.settings import DataSettings
from mdgan.gan.labels import Samples
from mdgan.samples.contract import Shape
from mdgan.settings.climber import HillClimber
from mdgan.settings.machine import num_cores

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
    """Decides how many threads read how far ahead, by how long training waited for its batches.

    As ParaGAN's congestion-aware tuner (section 4.1), which keeps latency below a threshold. The
    paper gives neither window nor threshold nor steps; those here are ours (docs/decisions.md).

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


_TELL_SECONDS = 5.0
_THREADS_A_CORE, _MOST_THREADS = 4, 32
_LEAST_BATCHES, _MOST_BATCHES = 2, 32
"""How many batches are read ahead for each worker: no result depends on it, and it follows how long
training waits, so it is no setting."""
_MEMORY_SHARE = 8  # samples that are read ahead take an eighth of the machine's memory at most
_FLOAT_BYTES = 4
_NO_WAITS: Mapping[str, float] = {"batches": 0, "waited_seconds": 0.0, "longest_seconds": 0.0}
"""How long training waited for its batches."""


class Fetcher:
    """The threads of a process that read samples, begun with the first one asked for."""

    def __init__(self, threads: Range, buffer: Range) -> None:
        self._tuner = Tuner(threads, buffer)
        self._pools: list[ThreadPoolExecutor] = []
        self._threads = 0
        self._waits = dict(_NO_WAITS)
        self._drawn: float | None = None
        self._told = (-inf, 0, 0)

    @classmethod
    def of(
        cls, settings: DataSettings, batch_size: int, shape: Shape, processes: int, workers: int
    ) -> "Fetcher":
        """As the user has it; what is `auto` is tuned."""
        threads = settings.data_threads
        if threads == "auto":
            most = min(_THREADS_A_CORE * num_cores() // processes, _MOST_THREADS)
            of_threads = Range(1, max(2, most))
        else:
            of_threads = Range(threads, threads)
        least = _LEAST_BATCHES * batch_size
        fits = (
            psutil.virtual_memory().total // _MEMORY_SHARE // (workers * _FLOAT_BYTES * prod(shape))
        )
        of_buffer = Range(least, max(least, min(_MOST_BATCHES * batch_size, fits)))
        return cls(of_threads, of_buffer)

    @property
    def buffer(self) -> int:
        """How many samples are now read ahead for each shard."""
        return self._tuner.buffer

    def fetch(self, samples: Readable) -> "Fetched | None":
        """Fetches some samples ahead; None where that gains nothing."""
        if not self.buffer or not samples.read_one_by_one:
            return None
        return Fetched(samples, self)

    def tell(self, *, at_end: bool = False) -> dict[str, Any] | None:
        """How long training waited for data since this was told, and what reads them.

        Returns:
            JSON values: `batches`, `waited_seconds`, `longest_seconds`, `threads` and `buffer`.
            None if there is nothing to tell, or too little has passed since and nothing changed.
        """
        now, tuner = time.monotonic(), self._tuner
        told_at, *setting = self._told
        is_due = now >= told_at + _TELL_SECONDS or [tuner.threads, tuner.buffer] != setting
        if not self._waits["batches"] or not (is_due or at_end):
            return None
        self._told = now, tuner.threads, tuner.buffer
        waits, self._waits = self._waits, dict(_NO_WAITS)
        rounded = {name: round(value, 6) for name, value in waits.items()}
        return {**rounded, "threads": tuner.threads, "buffer": tuner.buffer}

    def close(self) -> None:
        """Ends the threads; what they are reading at this moment is still read."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def submit(self, read: Callable[[int], Tensor], position: int) -> Future[Tensor]:
        """Has a thread read one sample."""
        if self._threads != self._tuner.threads:
            if self._pools:
                self._pools[-1].shutdown(wait=False)  # its threads end with what they were given
            self._threads = self._tuner.threads
            self._pools.append(ThreadPoolExecutor(self._threads, thread_name_prefix="data"))
        return self._pools[-1].submit(read, position)

    def note(self, waited_seconds: float) -> None:
        """Training waited so long for a batch."""
        before, self._drawn = self._drawn, time.monotonic()
        self._waits["batches"] += 1
        self._waits["waited_seconds"] += waited_seconds
        self._waits["longest_seconds"] = max(self._waits["longest_seconds"], waited_seconds)
        if before is not None:  # nothing could have been read ahead for the first batch
            self._tuner.note(waited_seconds, self._drawn - before)


class Fetched:
    """The samples of one shard that have been read, or are being read, before they are drawn."""

    def __init__(self, samples: Readable, fetcher: Fetcher) -> None:
        self._samples = samples
        self._fetcher = fetcher
        self._reading: dict[int, Future[Tensor]] = {}

    def take(self, drawn: Tensor, coming: Tensor) -> Samples:
        """The samples that are drawn; those that come next are read while the caller goes on.

        What comes next may change from one call to the next, as when a shard goes back to an
        earlier state. Then other samples are read, and those that are no longer wanted are dropped.
        """
        now, later = drawn.tolist(), coming.tolist()
        self._read([*now, *later])
        is_there = all(self._reading[position].done() for position in now)
        began = time.monotonic()
        try:
            images = [self._reading[position].result() for position in now]
        except Exception:  # a reader may raise anything
            return self._samples.samples(drawn)  # tries again, and replaces what cannot be read
        finally:
            self._fetcher.note(0.0 if is_there else time.monotonic() - began)
            self._read(later)
        return Samples(torch.cat(images), self._samples.labels[drawn])

    def _read(self, positions: list[int]) -> None:
        """Has exactly these samples read, if they are not yet, and forgets all others."""
        before, self._reading = self._reading, {}
        for position in positions:
            if position not in self._reading:
                known = before.pop(position, None)
                submit = self._fetcher.submit
                self._reading[position] = known or submit(self._samples.read, position)
        for future in before.values():
            future.cancel()
