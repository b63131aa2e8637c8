"""Measures what tracing costs: recording, sending and writing all spans of an iteration.

    python -m benchmarks.tracing

Trains on digits with 4 workers, each process its own. Then it runs the same tracing code alone, for
as many spans as that run recorded in an iteration, and prints the time of these spans as a share of
the iteration's.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from mdgan import messages
from mdgan.observe.tracer import Tracer
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_directory import RunDirectory
from mdgan.transport.frames import decode, encode

ITERATIONS = 1000
REPEATS = 5


def train(folder: Path) -> RecordedRun:
    flags = ["--world-size", "5", "--iterations", str(ITERATIONS), "--eval-interval", "0"]
    flags += ["--sample-interval", "0", "--out", str(folder)]
    command = [sys.executable, "-m", "mdgan", "train", *flags]
    subprocess.run(command, check=True, capture_output=True)
    return RecordedRun.read(folder)


def iteration_seconds(run: RecordedRun) -> float:
    """Median seconds from the server's first span of an iteration to that of the next one."""
    starts = [spans[0].start for i, spans in sorted(run.traces["server"].spans.items()) if i > 0]
    return statistics.median(b - a for a, b in pairwise(starts))


def spans_an_iteration(run: RecordedRun) -> dict[str, int]:
    """The median number of spans that each role records in an iteration."""
    return {
        role: round(statistics.median(len(spans) for i, spans in trace.spans.items() if i > 0))
        for role, trace in run.traces.items()
    }


def replay_seconds(counts: dict[str, int], folder: Path) -> float:
    """Records, sends and writes that many spans; returns seconds an iteration of all roles."""
    run = RunDirectory.claim(folder)
    begin = time.monotonic()
    for role, count in counts.items():
        tracer = Tracer()
        for i in range(1, ITERATIONS + 1):
            tracer.iteration = i
            for _ in range(count):
                with tracer.of_worker(1)("real half"):
                    pass
            tracer.due()
            if i % 50 == 0:  # about a second
                rows = tracer.take()
                if role != "server":
                    message = messages.spans(i, rows, {"FEEDBACK": 1}, {"BATCHES": 1})
                    rows = decode(encode(message)).fields["rows"]
                run.append_trace(role, rows)
    return (time.monotonic() - begin) / ITERATIONS


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = train(Path(folder) / "run")
        whole, counts = iteration_seconds(run), spans_an_iteration(run)
        costs = [replay_seconds(counts, Path(folder) / f"replay-{n}") for n in range(REPEATS)]
    cost = statistics.median(costs)
    print(f"digits, 4 workers: {1e3 * whole:.2f} ms an iteration, {sum(counts.values())} spans")
    print(f"recording them: {1e6 * cost:.0f} µs of one core ({100 * cost / whole:.2f} %)")


if __name__ == "__main__":
    main()
