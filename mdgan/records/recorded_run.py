"""Reads a run from its folder, whether it has ended or not, for reports and tools."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, field

from mdgan.errors import BadInput
from mdgan.records.audit import Audit, read_audit
from mdgan.records.diagnosis import Finding, diagnose
from mdgan.records.roles import first_worker
from mdgan.records.row_reader import RowReader
from mdgan.records.rows import Count, Kind, Losses, RoundRow, Seconds, typed
from mdgan.records.run_directory import RunDirectory, Status
from mdgan.records.run_state import RunState

MOST_NAMES = 32
"""The most names of spans that a role may have; no honest host reports more."""
SpanName = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"\A[ -~]*\Z")]
_LONGEST_NUMBER = 19
_SHOWN = ("*.json*", "*.png", "audit", "audit/*", "samples", "samples/*", "trace", "trace/*")
_After = Annotated[float, Meta(gt=-1e16, lt=1e16)]
"""Below 0 for a span around others: a span is recorded when it ends."""
_Micros = Annotated[float, Meta(ge=0, lt=1e16)]
_Worker = Annotated[int, Meta(ge=0, lt=10**9)]


class RecordedSpan(NamedTuple):
    """What a role did for a worker (0: for all), with its start in seconds of training."""

    name: str
    worker: int
    start: float
    seconds: float
    num_bytes: int

    @property
    def end(self) -> float:
        """When the span ended, in seconds since training began."""
        return self.start + self.seconds


class TrafficCount(Struct, frozen=True):
    """Bytes that a role has sent and received since its start; `memory` is 0 if not known."""

    iteration: Count
    seconds: Seconds
    sent: Mapping[str, Count] = field(name="sent_bytes", default_factory=dict)
    received: Mapping[str, Count] = field(name="received_bytes", default_factory=dict)
    memory: Count = field(name="memory_bytes", default=0)

    @property
    def total(self) -> int:
        """Bytes sent and received together."""
        return sum(self.sent.values()) + sum(self.received.values())


class _SpansRow(Struct, frozen=True):
    """A row with spans: name, worker, microseconds after `start`, microseconds long, bytes."""

    iteration: Count
    start: Annotated[float, Meta(gt=-1e12, lt=1e12)]
    spans: list[tuple[SpanName, _Worker, _After, _Micros, Count]]


class Trace(Struct):
    """The records of one role: spans by iteration, traffic and memory in order of time."""

    role: str
    spans: dict[int, list[RecordedSpan]] = {}
    traffic: list[TrafficCount] = []
    memory: list[int] = []
    names: set[str] = set()

    @property
    def workers(self) -> set[int]:
        """The workers for which the role has spans."""
        return {span.worker for spans in self.spans.values() for span in spans} - {0}

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds one row of the role's file; ValueError if it is no row of a trace."""
        if "spans" not in row:
            counts = typed(row, TrafficCount)
            if counts.sent or counts.received:
                self.traffic.append(counts)
            if counts.memory:
                self.memory.append(counts.memory)
            return
        spans_row = typed(row, _SpansRow)
        names = self.names | {span[0] for span in spans_row.spans}
        if len(names) > MOST_NAMES:
            raise ValueError(f"more than {MOST_NAMES} names of spans")
        self.names = names
        self.spans.setdefault(spans_row.iteration, []).extend(
            RecordedSpan(
                name,
                worker,
                spans_row.start + after / 1e6,
                seconds=duration / 1e6,
                num_bytes=num_bytes,
            )
            for name, worker, after, duration, num_bytes in spans_row.spans
        )


@dataclass(frozen=True)
class RecordedRun:
    """One run: `state` and `of` have typed rows, `events` raw ones, `damage` lines on lost rows."""

    path: Path
    config: Mapping[str, Any]
    status: Status
    events: list[dict[str, Any]]
    state: RunState
    traces: Mapping[str, Trace]
    samples: Mapping[int, Path]
    damage: tuple[str, ...]

    @classmethod
    def read_for_others(cls, path: Path) -> "RecordedRun":
        """Reads a run, perhaps a stranger's, for a page that others see; BadInput as `read`.

        A link out of the folder would show a file of this user. Only git-annex keeps files behind
        links, in the repository that the folder lies in.
        """
        within = path.resolve()
        allowed = [within, *(above / ".git/annex/objects" for above in within.parents)]
        for link in (link for name in _SHOWN for link in path.glob(name)):
            target = link.resolve()
            is_within = any(map(target.is_relative_to, allowed))
            if not is_within and (target.is_file() or target.is_dir()):
                way_out = "if that is to be seen, replace the link by it"
                raise BadInput(link, f"leads out of the run's folder, to {target}", way_out)
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> "RecordedRun":
        """Reads a run, without damaged lines; of a huge run, only some iterations.

        Raises:
            BadInput: the folder is no run's, or its events would take too much memory.
        """
        run = RunDirectory.open(path)
        damage: list[str] = []
        status = run.read_status()
        events: list[dict[str, Any]] = []
        state = RunState()

        def take(record: dict[str, Any]) -> None:
            state.take(record)
            if "event" in record:
                events.append(record)

        metrics, spans = path / "metrics.jsonl", sorted((path / "trace").glob("*.jsonl"))
        RowReader([metrics], damage).read(metrics, take)
        traces = {file.stem: Trace(file.stem) for file in spans}
        reader = RowReader(spans, damage)
        for file in spans:
            reader.read(file, traces[file.stem].add)
        samples = {
            int(file.stem): file
            for file in sorted((path / "samples").glob("*.png"))
            if file.stem.isdecimal() and len(file.stem) < _LONGEST_NUMBER
        }
        return cls(
            path,
            run.read_config(),
            status,
            events=events,
            state=state,
            traces=traces,
            samples=samples,
            damage=tuple(damage),
        )

    def named(self, event: str) -> list[dict[str, Any]]:
        """The events of one name as the file has them, in order."""
        return [record for record in self.events if record["event"] == event]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The rows of one type, in order."""
        return self.state.of(kind)

    def holdings(self) -> dict[int, list[int]]:
        """Worker → how many samples of each class it holds, by the last record."""
        workers = sorted(self.state.workers.items())
        return {n: worker.classes for n, worker in workers if worker.classes is not None}

    @cached_property
    def audit(self) -> Audit | None:
        """The results of the last `mdgan audit` of the run, if there was one."""
        return read_audit(self.path)

    @property
    def unit(self) -> str:
        """The unit in which the run counts: `round` or `iteration`."""
        return self.status.get("unit") or ("round" if self.of(RoundRow) else "iteration")

    @property
    def under_way(self) -> bool:
        """Whether the run starts or trains, as its `run.json` says."""
        return self.status.get("state") in ("starting", "running")

    @cached_property
    def finding(self) -> Finding | None:
        """The diagnosis, if something seems to go wrong."""
        return diagnose(self.of(Losses), self.state.scores, self.config)

    @cached_property
    def hosts(self) -> list[Trace]:
        """The traces of the hosts, in the order of their first workers."""
        hosts = [trace for role, trace in self.traces.items() if first_worker(role)]
        return sorted(hosts, key=lambda trace: first_worker(trace.role))
