"""Threads read samples before they are drawn; the tuner decides how many threads, how far ahead."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.data import fetching as fetching_module
from mdgan.data.fetching import MOST_PATIENCE, PATIENCE, THRESHOLD, WINDOW, Fetcher, Range, Tuner
from mdgan.data.partitioner import Partitioner
from mdgan.data.settings import DataSettings
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.gan.labels import Samples

LONG = 60.0


class Numbers(Partitioner):
    """Sample i is the number i, and its class i + 1000.

    Args:
        size: how many.
        before: called with the position of each sample that is about to be read.
    """

    read_one_by_one = True

    def __init__(self, size: int, before: Callable[[int], object] = lambda _: None) -> None:
        self.labels = torch.arange(1000, 1000 + size)
        self._before = before

    def images(self, indices: Tensor) -> Tensor:
        for index in indices.tolist():
            self._before(index)
        return indices.to(torch.float32).reshape(-1, 1, 1, 1)


def shard_of(source: Partitioner, fetcher: Fetcher | None = None) -> Shard:
    generator = torch.Generator().manual_seed(3)
    return Shard(source, torch.arange(len(source)), generator, fetcher)


@contextmanager
def fetching(threads: int = 2, buffer: int = 8) -> Iterator[Fetcher]:
    with closing(Fetcher(Range(threads, threads), Range(buffer, buffer))) as fetcher:
        yield fetcher


class Clock:
    """Stands in for `time`: only reading takes time, and only while a batch is waited for."""

    def __init__(self) -> None:
        self._now = 0.0
        self._drawing = self._waiting = False
        self._changed = threading.Condition()

    def monotonic(self) -> float:
        with self._changed:
            self._waiting = self._drawing
            self._changed.notify_all()
            return self._now

    def read_one(self, _: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, LONG)
            self._now += 1e-3

    def draw(self, shard: Shard) -> None:
        self._drawing = True
        shard.next_batch(4)
        self._drawing = False
        self.monotonic()

    def let_all_be_read(self) -> None:
        self._drawing = True
        self.monotonic()


def data_threads() -> int:
    return sum(thread.name.startswith("data") for thread in threading.enumerate())


def assert_equal(wanted: Samples, result: Samples) -> None:
    assert wanted.labels is not None
    assert result.labels is not None
    assert torch.equal(wanted.images, result.images)
    assert torch.equal(wanted.labels, result.labels)


steps = st.lists(st.one_of(st.integers(1, 9), st.sampled_from(["keep", "go back"])), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 40), steps)
def test_the_same_samples_for_any_threads_and_any_buffer(
    size: int, threads: int, buffer: int, steps: list[int | str]
) -> None:
    with fetching(threads, buffer) as fetcher:
        plain, ahead = shard_of(Numbers(size)), shard_of(Numbers(size), fetcher)
        kept = plain.state(), ahead.state()
        for step in steps:
            if step == "keep":
                kept = plain.state(), ahead.state()
            elif isinstance(step, str):
                assert plain.load_state(kept[0])
                assert ahead.load_state(kept[1])
            else:
                assert_equal(plain.next_batch(step), ahead.next_batch(step))
            for name, tensor in plain.state().items():
                assert torch.equal(tensor, ahead.state()[name]), "what is only fetched is no state"


def test_what_comes_next_is_read_before_it_is_drawn() -> None:
    read, enough = [], threading.Semaphore(0)

    def before(position: int) -> None:
        read.append(position)
        enough.release()

    with fetching(threads=2, buffer=5) as fetcher:
        shard = shard_of(Numbers(40, before), fetcher)
        shard.next_batch(3)
        for _ in range(3 + 5):
            assert enough.acquire(timeout=LONG)
        coming = shard.next_batch(5).images.flatten().long().tolist()
        assert set(coming) <= set(read[:8])


def test_threads_read_at_once() -> None:
    together = threading.Barrier(3)
    with fetching(threads=3) as fetcher:
        shard = shard_of(Numbers(3, lambda _: together.wait(LONG)), fetcher)
        assert len(shard.next_batch(3)) == 3


def test_threads_begin_with_the_first_batch_and_end_with_the_rank() -> None:
    assert data_threads() == 0
    with fetching(threads=2) as fetcher:
        shards = [shard_of(Numbers(20), fetcher) for _ in range(2)]
        assert data_threads() == 0, "a rank may still be forked"
        for shard in shards:
            shard.next_batch(4)
        assert 1 <= data_threads() <= 2
    assert data_threads() == 0
    in_memory = Numbers(20)
    in_memory.read_one_by_one = False
    with fetching() as fetcher:
        shard_of(in_memory, fetcher).next_batch(4)
        assert data_threads() == 0, "there is nothing to wait for"


def test_a_sample_that_gets_lost_is_replaced_as_without_threads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(position: int) -> None:
        if position in (2, 3, 7):
            raise OSError("gone")

    plain = shard_of(Numbers(10, refuse))
    wanted = [plain.next_batch(4) for _ in range(8)]
    caplog.clear()
    with fetching() as fetcher, caplog.at_level(logging.WARNING):
        ahead = shard_of(Numbers(10, refuse), fetcher)
        for batch in wanted:
            assert_equal(batch, ahead.next_batch(4))
    assert caplog.text.count("stands in for each") == 1


def test_waiting_is_told_with_what_reads_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching_module, "_TELL_SECONDS", 1e9)
    clock = Clock()
    monkeypatch.setattr(fetching_module, "time", clock)
    slow = Numbers(500, clock.read_one)
    with closing(Fetcher(Range(1, 4), Range(4, 16))) as fetcher:
        shard = shard_of(slow, fetcher)
        assert fetcher.tell(at_end=True) is None
        clock.draw(shard)
        first = fetcher.tell()
        assert first is not None
        assert (first["batches"], first["threads"], first["buffer"]) == (1, 1, 4)
        assert first["waited_seconds"] == first["longest_seconds"] >= 4e-3
        batches = 0
        while fetcher.buffer < 16:  # nothing but waiting: soon all threads read
            clock.draw(shard)
            batches += 1
        told = fetcher.tell()
        assert told is not None
        assert batches >= 2 * WINDOW
        assert (told["batches"], told["threads"], told["buffer"]) == (batches, 4, 16)
        assert told["waited_seconds"] >= told["longest_seconds"] > 0
        assert fetcher.tell(at_end=True) is None, "nothing was drawn since"
        clock.draw(shard)
        assert fetcher.tell() is None, "nothing has changed"
        assert fetcher.tell(at_end=True) is not None
        clock.let_all_be_read()
    assert data_threads() == 0, "those of smaller pools have ended, too"


def test_no_thread_at_all_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^--set data_threads=0: .*at least one thread"):
        DataSettings.read({"data_threads": 0})


# Threads and buffer follow how long training waits: up in congestion, down again afterwards.


TRACES = Path(__file__).parent / "traces" / "waits.json"
"""From `python -m benchmarks.pipeline --record`: milliseconds that each batch was waited for, and
those since the one before."""

THREADS, BUFFER = Range(1, 32), Range(32, 512)
QUIET, CONGESTED = (0.0, 0.03), (0.03, 0.06)


def played(trace: list[tuple[float, float]], tuner: Tuner | None = None) -> list[int]:
    """How many threads read after each batch."""
    tuner = tuner or Tuner(THREADS, BUFFER)
    threads = []
    for waited, passed in trace:
        tuner.note(waited, passed)
        threads.append(tuner.threads)
    return threads


def recorded(name: str) -> list[tuple[float, float]]:
    pairs = json.loads(TRACES.read_text())[name]
    return [(waited / 1e3, passed / 1e3) for waited, passed in pairs]


def test_a_burst_is_answered_while_it_lasts_and_forgotten_afterwards() -> None:
    trace = recorded("bursts")
    slow = [k for k, (waited, _) in enumerate(trace) if waited > 0.01]
    threads = played([*trace, *[QUIET] * 200])
    assert threads[slow[0] - 1] == 1
    assert max(threads[slow[0] : slow[-1] + 1]) > 1, "within the burst"
    assert threads[-1] == 1


def test_a_single_stall_starts_no_threads() -> None:
    trace = recorded("stall")
    longest = max(range(len(trace)), key=lambda k: trace[k][0])
    assert trace[longest][0] > 0.5
    threads = played(trace)
    assert threads[longest - 1] == threads[longest] == threads[longest + WINDOW]


def test_storage_that_is_always_slow_is_tried_with_fewer_threads_ever_more_rarely() -> None:
    tuner = Tuner(THREADS, BUFFER)
    threads = []
    for _ in range(20_000):  # four threads are enough, two are not
        tuner.note(*(QUIET if tuner.threads >= 4 else CONGESTED))
        threads.append(tuner.threads)
    downs = [k for k, (a, b) in enumerate(pairwise(threads)) if b < a]
    gaps = [b - a for a, b in pairwise(downs)]
    assert gaps[0] < 4 * PATIENCE
    assert gaps[-1] >= MOST_PATIENCE
    assert sum(count < 4 for count in threads[5000:]) < 0.02 * 15_000


seconds = st.integers(0, 80_000).map(lambda count: count / 8192)
"""Sums of these are exact in any order."""
traces = st.lists(st.tuples(seconds, seconds).map(lambda pair: (pair[0], sum(pair))), max_size=300)
ranges = st.tuples(st.integers(1, 40), st.integers(0, 500)).map(lambda p: Range(p[0], sum(p)))


@given(traces, ranges, ranges)
def test_any_trace(trace: list[tuple[float, float]], threads: Range, buffer: Range) -> None:
    tuner, scaled = Tuner(threads, buffer), Tuner(threads, buffer)
    before, changed = (threads.least, buffer.least), -WINDOW
    for k, (waited, passed) in enumerate(trace):
        tuner.note(waited, passed)
        now = tuner.threads, tuner.buffer
        assert threads.least <= now[0] <= threads.most
        assert buffer.least <= now[1] <= buffer.most
        assert 0 <= tuner.latency <= 1
        if now != before:
            assert k - changed >= WINDOW, "a step is given time to show what it does"
            recent = trace[k + 1 - WINDOW : k + 1]
            wait = sorted(w for w, _ in recent)
            time = sum(p for _, p in recent) - wait[-1]
            congested = Fraction(sum(wait[:-1])) > Fraction(THRESHOLD) * Fraction(time)
            assert (now > before) == congested
            assert (now[0] > before[0]) + (now[1] < before[1]) < 2, "both go the same way"
            before, changed = now, k
        scaled.note(4 * waited, 4 * passed)
        assert (scaled.threads, scaled.buffer) == now, "the unit of time does not matter"


@settings(max_examples=5)
@given(traces, ranges, ranges)
def test_it_settles_when_the_storage_does(
    trace: list[tuple[float, float]], threads: Range, buffer: Range
) -> None:
    tuner = Tuner(threads, buffer)
    played([*trace, *[CONGESTED] * (12 * WINDOW)], tuner)
    assert (tuner.threads, tuner.buffer) == (threads.most, buffer.most)
    played([QUIET] * (12 * (MOST_PATIENCE + WINDOW)), tuner)
    assert (tuner.threads, tuner.buffer) == (threads.least, buffer.least)


@pytest.mark.parametrize("passed", [0.0, 1e-300])
def test_no_time_at_all_is_no_congestion(passed: float) -> None:
    assert set(played([(0.0, passed)] * 50)) == {1}
