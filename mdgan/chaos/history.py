"""Reads what a run's servers record, while the run goes on."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.records.run_directory import ENDED, RunDirectory
from mdgan.records.run_state import RunState
from mdgan.records.run_tail import METRICS, RunTail


@dataclass(frozen=True)
class Noticed:
    """One event of `metrics.jsonl`: its name, when it happened since 1970, and the whole line."""

    name: str
    time: float
    iteration: int
    record: dict[str, Any]

    @property
    def workers(self) -> list[int]:
        """The workers that it is about."""
        one = [self.record["worker"]] if "worker" in self.record else []
        return [int(worker) for worker in self.record.get("workers", one)]


class History:
    """Everything that was ever recorded, also what a server that took over has cut off again.

    Attributes:
        events: in the order in which they were read.
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[Noticed] = []
        self._run = RunDirectory(folder)
        self._tail = RunTail(folder)
        self._state = RunState()
        self._seen: set[str] = set()

    @property
    def iteration(self) -> int:
        """The last recorded one."""
        return self._state.iteration

    def read(self) -> None:
        """Takes in what is new."""
        for news in self._tail.read():
            for record in news.records if news.name == METRICS else ():
                with suppress(ValueError):
                    self._take(record)

    def after(self, moment: float, *names: str) -> Iterator[Noticed]:
        """The events of some names from a moment on, in order."""
        for event in self.events:
            if event.name in names and event.time >= moment:
                yield event

    def state(self) -> str:
        """`starting`, `running`, `finished`, `stopped`, `failed`, or empty before the start."""
        with suppress(BadInput):
            return str(self._run.read_status().get("state", ""))
        return ""

    def has_ended(self) -> bool:
        """Whether the run's status says that it is over."""
        return self.state() in ENDED

    def _take(self, record: dict[str, Any]) -> None:
        row = self._state.take(record)
        text = json.dumps(record, sort_keys=True)
        if "event" in record and text not in self._seen:
            self._seen.add(text)
            moment = self._state.time_of(row)
            self.events.append(Noticed(record["event"], moment, row.iteration, record))
