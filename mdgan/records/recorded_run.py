"""A run read back from its folder, finished or not, for reports, traces and the live view."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mdgan.records.run_directory import RunDirectory

_LONGEST_NUMBER = 19


class RecordedSpan(NamedTuple):
    """What a role did in one stretch of time.

    Attributes:
        name: what: generate, send, wait, aggregate, step, swap, evaluate or checkpoint on the
            server; receive, real half, fake half, local step, feedback, train, send or swap on a
            host.
        worker: for which of a host's workers; 0 if for the whole role.
        start: seconds since training began, by the server's clock.
        seconds: how long it took.
        num_bytes: what moved meanwhile.
    """

    name: str
    worker: int
    start: float
    seconds: float
    num_bytes: int


class Traffic(NamedTuple):
    """Bytes that a role had moved by some time, by kind of message.

    Attributes:
        iteration: the last iteration that the role was at.
        seconds: since training began.
        sent: bytes sent since the start, by kind.
        received: bytes received since the start, by kind.
    """

    iteration: int
    seconds: float
    sent: Mapping[str, int]
    received: Mapping[str, int]


@dataclass
class Trace:
    """All that one role recorded.

    Attributes:
        role: `server`, `scorer`, `standalone`, or `host-N`, N being the host's first worker.
        spans: by iteration, in the order in which they began.
        traffic: in time order; empty where nothing is sent.
    """

    role: str
    spans: dict[int, list[RecordedSpan]] = field(default_factory=dict)
    traffic: list[Traffic] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Takes in one row of the role's file.

        Raises:
            KeyError: the row is not one of a trace.
            TypeError: so too.
            ValueError: so too.
            OverflowError: so too.
        """
        iteration = int(row["iteration"])
        if "spans" not in row:
            sent, received = dict(row["sent_bytes"]), dict(row["received_bytes"])
            self.traffic.append(Traffic(iteration, float(row["seconds"]), sent, received))
            return
        start = float(row["start"])
        spans = [
            RecordedSpan(
                str(name), int(worker), start + after / 1e6, duration / 1e6, int(num_bytes)
            )
            for name, worker, after, duration, num_bytes in row["spans"]
        ]
        self.spans.setdefault(iteration, []).extend(spans)


@dataclass(frozen=True)
class RecordedRun:
    """One run.

    Attributes:
        path: its folder.
        config: `config.json`: all settings.
        status: `run.json`: state, iteration, seconds, version, …
        iterations: the metrics of the logged iterations, in order.
        events: everything else in `metrics.jsonl`, in order; `event` says what.
        traces: by role.
        samples: the sample grids, by iteration.
        damage: one line for everything that could not be read.
    """

    path: Path
    config: Mapping[str, Any]
    status: Mapping[str, Any]
    iterations: list[dict[str, Any]]
    events: list[dict[str, Any]]
    traces: Mapping[str, Trace]
    samples: Mapping[int, Path]
    damage: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "RecordedRun":
        """Reads a run; what a crash cut off is left out and named in `damage`.

        Raises:
            BadInput: not a run, or one of a newer version of mdgan.
        """
        run = RunDirectory.open(path)
        damage: list[str] = []
        status = run.read_status()
        records = list(_lines(path / "metrics.jsonl", damage))
        return cls(
            path=path,
            config=run.read_config(),
            status=status,
            iterations=[record for record in records if "event" not in record],
            events=[record for record in records if "event" in record],
            traces={
                file.stem: _trace(file, damage) for file in sorted((path / "trace").glob("*.jsonl"))
            },
            samples={
                int(file.stem): file
                for file in sorted((path / "samples").glob("*.png"))
                if file.stem.isdecimal() and len(file.stem) < _LONGEST_NUMBER
            },
            damage=tuple(damage),
        )

    def named(self, event: str) -> list[dict[str, Any]]:
        """The events of one name, in order."""
        return [record for record in self.events if record["event"] == event]


def _lines(path: Path, damage: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file; a last line without its end is still being written, or cut."""
    if not path.exists():
        return
    bad = 0
    *lines, rest = path.read_bytes().split(b"\n")
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        else:
            bad += 1
    if bad:
        damage.append(f"{path}: {bad} line(s) are damaged and left out")
    if rest:
        damage.append(f"{path}: ends in the middle of a line, which is left out")


def _trace(path: Path, damage: list[str]) -> Trace:
    trace = Trace(path.stem)
    bad = 0
    for record in _lines(path, damage):
        try:
            trace.add(record)
        except (KeyError, TypeError, ValueError, OverflowError):
            bad += 1
    if bad:
        damage.append(f"{path}: {bad} line(s) make no sense and are left out")
    return trace
