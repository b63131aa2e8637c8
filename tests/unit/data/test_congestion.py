"""Threads and buffer follow how long training waits: up in congestion, down again afterwards."""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.data.congestion import MOST_PATIENCE, PATIENCE, THRESHOLD, WINDOW, Range, Tuner

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
