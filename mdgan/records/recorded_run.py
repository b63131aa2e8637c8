"""A run as it is read from its folder, whether it has ended or not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from mdgan.records.happenings import KINDS, Happening
from mdgan.records.roles import first_worker
from mdgan.records.rows import (
    Attended,
    Kind,
    Losses,
    Round,
    Row,
    Scores,
    Swap,
    Unsaved,
    Unscored,
    json_object,
    typed,
)
from mdgan.records.run_directory import RunDirectory, Status

_LONGEST_NUMBER = 19


class RecordedSpan(NamedTuple):
    """What a role did in one stretch of time.

    Attributes:
        name: the operation, such as generate, send, wait, aggregate, step or checkpoint on the
            server, and receive, real half, local step, feedback or train on a host.
        worker: the one of a host's workers that it was for; 0 if it was for the whole role.
        start: seconds since training began, by the server's clock.
        seconds: how long it took.
        num_bytes: how many bytes the role sent or received meanwhile.
    """

    name: str
    worker: int
    start: float
    seconds: float
    num_bytes: int

    @property
    def end(self) -> float:
        """When it was over, in seconds since training began."""
        return self.start + self.seconds


class Traffic(Struct, frozen=True):
    """Bytes that a role had sent and received at some time.

    Attributes:
        iteration: the last iteration that the role was at.
        seconds: since training began.
        sent: bytes sent since the start, by kind of message.
        received: bytes received since the start, by kind of message.
    """

    iteration: int
    seconds: float
    sent: Mapping[str, int] = field(name="sent_bytes")
    received: Mapping[str, int] = field(name="received_bytes")

    @property
    def total(self) -> int:
        """Bytes sent and received since the start."""
        return sum(self.sent.values()) + sum(self.received.values())


class _Done(Struct, frozen=True):
    """A row with spans: each a name, worker, microseconds after start, duration in them, bytes."""

    iteration: int
    start: float
    spans: list[tuple[str, int, float, float, int]]


class Trace(Struct):
    """What one role recorded.

    Attributes:
        role: its name; see `mdgan.records.roles`.
        spans: by iteration, in the order in which they began.
        traffic: in time order; empty if nothing is sent.
    """

    role: str
    spans: dict[int, list[RecordedSpan]] = {}
    traffic: list[Traffic] = []

    @property
    def workers(self) -> set[int]:
        """The workers for which the role did something."""
        return {span.worker for spans in self.spans.values() for span in spans} - {0}

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds one row of the role's file.

        Raises:
            ValueError: the row is not one of a trace.
        """
        if "spans" not in row:
            self.traffic.append(typed(row, Traffic))
            return
        done = typed(row, _Done)
        self.spans.setdefault(done.iteration, []).extend(
            RecordedSpan(name, worker, done.start + after / 1e6, duration / 1e6, num_bytes)
            for name, worker, after, duration, num_bytes in done.spans
        )


@dataclass(frozen=True)
class RecordedRun:
    """One run.

    Attributes:
        path: its folder.
        config: all settings, from `config.json`.
        status: the content of `run.json`.
        iterations: the rows of `metrics.jsonl` for logged iterations, in order. `rows` and `of`
            give typed rows.
        events: the other rows, in order; `event` names each.
        traces: by role.
        samples: the sample grids, by iteration.
        damage: one line for each thing that could not be read.
    """

    path: Path
    config: Mapping[str, Any]
    status: Status
    iterations: list[dict[str, Any]]
    events: list[dict[str, Any]]
    traces: Mapping[str, Trace]
    samples: Mapping[int, Path]
    damage: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "RecordedRun":
        """Reads a run; lines that are damaged or cut off are left out and counted in `damage`.

        Raises:
            BadInput: not a run, or one of a newer version of mdgan.
        """
        run = RunDirectory.open(path)
        damage: list[str] = []
        status = run.read_status()
        metrics = path / "metrics.jsonl"
        records = list(_lines(metrics, damage))
        _tell_senseless(metrics, sum(_row(record) is None for record in records), damage)
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

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of `metrics.jsonl` that make sense, first the iterations, then the events."""
        records = (*self.iterations, *self.events)
        return [row for record in records if (row := _row(record)) is not None]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The rows of one type, in order."""
        return [row for row in self.rows if isinstance(row, kind)]

    def named(self, event: str) -> list[dict[str, Any]]:
        """The events of one name as they stand in the file, in order."""
        return [record for record in self.events if record["event"] == event]

    @cached_property
    def unit(self) -> str:
        """What the run is counted in: `round` or `iteration`."""
        return self.status.get("unit") or ("round" if self.of(Round) else "iteration")

    @cached_property
    def hosts(self) -> list[Trace]:
        """The traces of the hosts, in the order of their first workers."""
        hosts = [trace for role, trace in self.traces.items() if first_worker(role)]
        return sorted(hosts, key=lambda trace: first_worker(trace.role))


_KINDS: dict[str, type[Row]] = {
    **dict.fromkeys(KINDS, Happening),
    "scores": Scores,
    "swap": Swap,
    "round": Round,
    "attendance": Attended,
    "unsaved": Unsaved,
    "unscored": Unscored,
}
"""The types of events by name; an event of another name, as a new family may write, is a `Row`."""


def _row(record: Mapping[str, Any]) -> Row | None:
    kind = _KINDS.get(str(record["event"]), Row) if "event" in record else Losses
    try:
        return typed(record, kind)
    except ValueError:
        return None


def _lines(path: Path, damage: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file; a last line without its end is still being written, or cut."""
    if not path.exists():
        return
    bad = 0
    *lines, rest = path.read_bytes().split(b"\n")
    for line in lines:
        try:
            yield json_object(line)
        except ValueError:
            bad += 1
    if bad:
        damage.append(f"{path}: {bad} line(s) are damaged and left out")
    if rest:
        damage.append(f"{path}: ends in the middle of a line, which is left out")


def _trace(path: Path, damage: list[str]) -> Trace:
    trace, bad = Trace(path.stem), 0
    for record in _lines(path, damage):
        try:
            trace.add(record)
        except ValueError:
            bad += 1
    _tell_senseless(path, bad, damage)
    return trace


def _tell_senseless(path: Path, bad: int, damage: list[str]) -> None:
    if bad:
        damage.append(f"{path}: {bad} line(s) make no sense and are left out")
