"""Reads samples ahead: threads read the samples that a shard draws next while training computes.

This saves time where each sample is read when it is drawn (`Partitioner.read_one_by_one`). Which
samples come next depends on the shard alone. So the number of threads does not change any result.
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
"""The number of batches over which latency is averaged, and that each step of the tuner lasts."""
THRESHOLD = 0.05
"""The share of the time from one batch to the next that training may wait for data."""
PATIENCE = 32  # batches without congestion after which the tuner takes a step back
MOST_PATIENCE = 1024


class Range(NamedTuple):
    """The whole numbers from `least` to `most`; equal ones are a fixed number."""

    least: int
    most: int


class Tuner:
    """Decides how many threads read how far ahead, by how long training waited for its batches.

    As ParaGAN's congestion-aware tuner (section 4.1), it keeps latency below a threshold. The paper
    gives neither window nor threshold nor steps; those here are mdgan's (docs/decisions.md).

    A step up doubles threads and buffer, a step down takes that back. If congestion returns soon
    after a step down, the tuner waits twice as many batches before the next step down. So training
    does not have to wait again and again for a storage that is always slow.
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
        """How many samples threads should read ahead for each worker."""
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
        """Takes in how long training waited for a batch, and how long ago the last batch was."""
        self._window.append((waited_seconds, max(0.0, passed_seconds - waited_seconds)))
        if self._since_down is not None:
            self._since_down += 1
        if len(self._window) < WINDOW:
            return
        step_before, latency = self._climber.candidate, self.latency
        if latency > THRESHOLD:
            self._calm = 0
            self._climber.note(1 - latency)
            if self._since_down is not None and self._climber.candidate != step_before:
                too_early = self._since_down <= self._patience
                self._patience = min(2 * self._patience, MOST_PATIENCE) if too_early else PATIENCE
                self._since_down = None
        else:
            self._calm += 1
            if step_before != self._least and self._calm >= self._patience:
                self._climber.back()
                self._calm = self._since_down = 0
        if self._climber.candidate != step_before:
            self._window.clear()


_TELL_SECONDS = 5.0
_THREADS_A_CORE, _MOST_THREADS = 4, 32
_LEAST_BATCHES, _MOST_BATCHES = 2, 32
"""How many batches threads read ahead for each worker. It is no setting: no result depends on it,
and the tuner adapts it to how long training waits."""
_MEMORY_SHARE = 8  # samples read ahead take at most an eighth of the machine's memory
_FLOAT_BYTES = 4
_NO_WAITS: Mapping[str, float] = {"batches": 0, "waited_seconds": 0.0, "longest_seconds": 0.0}
"""The record of how long training waited for batches, before the first one."""


class Fetcher:
    """The threads of a process that read samples; they start with the first sample asked for."""

    def __init__(self, threads: Range, buffer: Range) -> None:
        self._tuner = Tuner(threads, buffer)
        self._pools: list[ThreadPoolExecutor] = []
        self._threads = 0
        self._waits = dict(_NO_WAITS)
        self._drawn: float | None = None
        self._last_report = (-inf, 0, 0)

    @classmethod
    def of(
        cls, settings: DataSettings, batch_size: int, shape: Shape, processes: int, workers: int
    ) -> "Fetcher":
        """Makes the fetcher by the user's settings; the tuner decides what is `auto`."""
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
        """How many samples the threads now read ahead for each shard."""
        return self._tuner.buffer

    def fetch(self, samples: Readable) -> "Fetched | None":
        """Begins to read the samples of a shard ahead; None if that would save no time."""
        if not self.buffer or not samples.read_one_by_one:
            return None
        return Fetched(samples, self)

    def tell(self, *, at_end: bool = False) -> dict[str, Any] | None:
        """Reports how long training waited for data since the last report, and the tuner's step.

        Returns:
            JSON values: `batches`, `waited_seconds`, `longest_seconds`, `threads` and `buffer`.
            None if there were no batches, or if the last report is recent and nothing changed.
        """
        now, tuner = time.monotonic(), self._tuner
        reported_at, *setting = self._last_report
        is_due = now >= reported_at + _TELL_SECONDS or [tuner.threads, tuner.buffer] != setting
        if not self._waits["batches"] or not (is_due or at_end):
            return None
        self._last_report = now, tuner.threads, tuner.buffer
        waits, self._waits = self._waits, dict(_NO_WAITS)
        rounded = {name: round(value, 6) for name, value in waits.items()}
        return {**rounded, "threads": tuner.threads, "buffer": tuner.buffer}

    def close(self) -> None:
        """Ends the threads, each after the sample that it is reading."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def submit(self, read: Callable[[int], Tensor], position: int) -> Future[Tensor]:
        """Has a thread read one sample."""
        if self._threads != self._tuner.threads:
            if self._pools:
                self._pools[-1].shutdown(wait=False)  # its threads end after their samples
            self._threads = self._tuner.threads
            self._pools.append(ThreadPoolExecutor(self._threads, thread_name_prefix="data"))
        return self._pools[-1].submit(read, position)

    def note(self, waited_seconds: float) -> None:
        """Takes in how long training waited for a batch."""
        last_drawn, self._drawn = self._drawn, time.monotonic()
        self._waits["batches"] += 1
        self._waits["waited_seconds"] += waited_seconds
        self._waits["longest_seconds"] = max(self._waits["longest_seconds"], waited_seconds)
        if last_drawn is not None:  # no thread could read ahead for the first batch
            self._tuner.note(waited_seconds, self._drawn - last_drawn)


class Fetched:
    """The samples of one shard that threads have read ahead, or are reading."""

    def __init__(self, samples: Readable, fetcher: Fetcher) -> None:
        self._samples = samples
        self._fetcher = fetcher
        self._reading: dict[int, Future[Tensor]] = {}

    def take(self, drawn: Tensor, coming: Tensor) -> Samples:
        """Returns the drawn samples; threads read the coming ones while the caller goes on.

        The coming samples may differ from those of the last call, as when a shard loads an earlier
        state. Then threads read other samples, and forget those that are no longer wanted.
        """
        wanted, later = drawn.tolist(), coming.tolist()
        self._read_exactly([*wanted, *later])
        is_there = all(self._reading[position].done() for position in wanted)
        began = time.monotonic()
        try:
            images = [self._reading[position].result() for position in wanted]
        except Exception:  # a reader may raise anything
            return self._samples.samples(drawn)  # tries again, and replaces what cannot be read
        finally:
            self._fetcher.note(0.0 if is_there else time.monotonic() - began)
            self._read_exactly(later)
        return Samples(torch.cat(images), self._samples.labels[drawn])

    def _read_exactly(self, positions: list[int]) -> None:
        """Has threads read exactly these samples, unless they have, and forgets all others."""
        unwanted, self._reading = self._reading, {}
        for position in positions:
            if position not in self._reading:
                future = unwanted.pop(position, None)
                submit = self._fetcher.submit
                self._reading[position] = future or submit(self._samples.read, position)
        for future in unwanted.values():
            future.cancel()
