"""What a role's timeline says of it now, taken in line by line."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from mdgan.observe.tracer import WINDOW
from mdgan.records.recorded_run import Trace, TrafficCount
from mdgan.records.roles import first_worker, leader
from mdgan.records.run_state import Pace

_WAITING = ("receive", "wait")
_TRAFFIC_SECONDS = 5.0


class RoleNow:
    """What one role does.

    Attributes:
        work: seconds of work by worker, then by iteration; of the last recorded iterations.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.iteration = 0
        self.seconds = 0.0
        self.pace = Pace()
        self.work: dict[int, dict[int, float]] = {}
        self.leads = leader([name]) is not None
        if first := first_worker(name):
            self.work[first] = {}
        self._traffic: deque[TrafficCount] = deque()

    def take(self, record: Mapping[str, Any]) -> None:
        """Takes in one row.

        Raises:
            ValueError: it makes no sense.
        """
        row = Trace(self.name)
        row.add(record)
        for traffic in row.traffic:
            self._at(traffic.seconds, traffic.iteration)
            self._traffic.append(traffic)
            recently = traffic.seconds - _TRAFFIC_SECONDS
            while len(self._traffic) > 2 and self._traffic[1].seconds <= recently:
                self._traffic.popleft()
        for iteration, spans in row.spans.items():
            for span in spans:
                if span.name not in _WAITING and span.worker:
                    work = self.work.setdefault(span.worker, {})
                    work[iteration] = work.get(iteration, 0.0) + span.seconds
                    if len(work) > WINDOW + 1:
                        del work[next(iter(work))]
            if spans:
                self._at(max(span.end for span in spans), iteration)

    def step_seconds(self, worker: int) -> list[float]:
        """A worker's work in each of the last iterations, without one that may be incomplete."""
        work = [seconds for number, seconds in sorted(self.work[worker].items()) if number > 0]
        return work[:-1] if len(work) > 1 else work

    def bytes_per_second(self, *, ended: bool) -> tuple[float | None, float | None]:
        """Bytes received and sent a second: recently, or over the whole of an ended run."""
        if not self._traffic:
            return None, None
        start = TrafficCount(0, 0.0, {}, {})
        before = start if ended or len(self._traffic) < 2 else self._traffic[0]
        after = self._traffic[-1]
        seconds = after.seconds - before.seconds
        received = sum(after.received.values()) - sum(before.received.values())
        sent = sum(after.sent.values()) - sum(before.sent.values())
        if seconds <= 0 or received < 0 or sent < 0:
            return None, None
        return received / seconds, sent / seconds

    def _at(self, seconds: float, iteration: int) -> None:
        self.iteration, self.seconds = iteration, seconds
        self.pace.add(seconds, iteration)
