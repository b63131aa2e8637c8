"""Checks and limits the timelines that hosts send to the server, and records them.

Reports and `mdgan watch` read these records later, so no host may put nonsense there.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.records.recorded_run import MOST_NAMES, SpanName
from mdgan.records.rows import Count, Rank, Seconds
from mdgan.records.values import said_bytes

MOST_BYTES = 64 << 20  # the most that is recorded of one host, beside `BYTES_A_SECOND`
BYTES_A_SECOND = 512  # further bytes a second: traffic and memory come as long as a run lasts
_OF_AN_EVENT_BYTES = 512
_AFTER_SECONDS = 60.0  # how far a host's clock may be ahead of the server's
_BEFORE_SECONDS = 86400.0  # how long a host may have run before this server started

_After = Annotated[int, Meta(gt=-(1 << 53), lt=1 << 53)]
_Micros = Annotated[int, Meta(ge=0, lt=1 << 53)]
_Clock = Annotated[float, Meta(gt=-1e12, lt=1e12)]
_KindName = Annotated[str, Meta(pattern=r"\A[A-Z]{1,16}\Z")]
_Moved = Annotated[dict[_KindName, Count], Meta(max_length=64)]


class _Row(msgspec.Struct, frozen=True):
    """One of the rows that `Tracer.take` returns: the spans of one iteration."""

    iteration: Count
    start: _Clock
    spans: list[tuple[SpanName, Count, _After, _Micros, Count]]

    def within(self, first: float, last: float) -> bool:
        """Whether all spans lie between two times of the server's clock."""
        begins = [after for _, _, after, _, _ in self.spans]
        ends = [after + duration for _, _, after, duration, _ in self.spans]
        begin = self.start + min(begins, default=0) / 1e6
        return first < begin and self.start + max(ends, default=0) / 1e6 < last


class _SpansFields(msgspec.Struct, frozen=True):
    """The fields of a SPANS message, which `messages.spans` makes."""

    rows: list[_Row]
    sent_bytes: _Moved
    received_bytes: _Moved
    memory_bytes: Count = 0
    fetching: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None
    epsilon: dict[Rank, Seconds] = {}
    replaced: dict[Rank, Seconds] = {}


class Timelines:
    """Records SPANS messages of hosts; `carried` returns a host's ranks, lost ones included."""

    def __init__(
        self,
        observer: RunObserver,
        carried: Callable[[int], Collection[int]],
        iterations: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer = observer
        self._carried = carried
        self._iterations = iterations
        self._clock = clock
        self._began = clock()
        self._names: dict[int, set[str]] = {}
        self._bytes: dict[int, int] = {}
        self._noted: set[tuple[int, str]] = set()

    def note_spans(self, host: int, message: Message) -> None:
        """Records a host's message; ValueError if no honest host sends such a one."""
        fields = msgspec.convert(dict(message.fields), _SpansFields, str_keys=True)
        self._check(host, message.iteration, fields)
        most = MOST_BYTES + BYTES_A_SECOND * (self._clock() - self._began)
        if self._bytes.get(host, 0) > most:
            self._note_once(host, "much", f"sent {said_bytes(most)} of timelines; more are")
            return
        written = self._observer.spans(
            f"host-{host}",
            message.iteration,
            self._of_this_time(host, fields.rows),
            sent_bytes=fields.sent_bytes,
            received_bytes=fields.received_bytes,
            memory_bytes=fields.memory_bytes,
        )
        about: Mapping[str, Any] = {"fetching": fields.fetching, "profile": fields.profile}
        written += _OF_AN_EVENT_BYTES * sum(event is not None for event in about.values())
        carried = self._carried(host)
        if epsilon := {n: e for n, e in fields.epsilon.items() if n in carried}:
            written += _OF_AN_EVENT_BYTES * len(epsilon)
            replaced = {n: e for n, e in fields.replaced.items() if n in epsilon}
            self._observer.spent(message.iteration, epsilon, replaced)
        self._bytes[host] = self._bytes.get(host, 0) + written
        self._observer.of_process(f"host-{host}", message.iteration, about)

    def _check(self, host: int, iteration: int, fields: _SpansFields) -> None:
        spans = [span for row in fields.rows for span in row.spans]
        names = self._names.setdefault(host, set())
        names.update(span[0] for span in spans)
        if len(names) > MOST_NAMES:
            raise ValueError(f"it has done more than {MOST_NAMES} different things")
        strangers = {span[1] for span in spans} - {0, *self._carried(host)}
        if strangers:
            raise ValueError(f"it does not carry rank {min(strangers)}")
        if max([iteration, *(row.iteration for row in fields.rows)]) > self._iterations:
            raise ValueError(f"the run has {self._iterations} iterations")
        if iteration < 0:
            raise ValueError(f"iteration {iteration}")

    def _of_this_time(self, host: int, rows: list[_Row]) -> list[Mapping[str, Any]]:
        """The rows of this run's time; drops others, as an honest host's clock may be wrong."""
        first, last = self._began - _BEFORE_SECONDS, self._clock() + _AFTER_SECONDS
        kept = [row for row in rows if row.within(first, last)]
        if len(kept) < len(rows):
            self._note_once(host, "time", "sent spans of a time before or after the run, which are")
        return [msgspec.structs.asdict(row) for row in kept]

    def _note_once(self, host: int, topic: str, what: str) -> None:
        if (host, topic) not in self._noted:
            self._noted.add((host, topic))
            self._observer.note(f"host {host} has {what} not recorded")
