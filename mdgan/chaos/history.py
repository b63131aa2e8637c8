"""Reads what a run's server records, while the run goes on."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.records.run_directory import ENDED, RunDirectory
from mdgan.records.run_tail import METRICS, RunTail


@dataclass(frozen=True)
class Noticed:
    """One event of `metrics.jsonl`.

    Attributes:
        name: `lost`, `joined`, ….
        time: when it happened, in seconds since 1970.
        iteration: in which it happened.
        record: the whole line.
    """

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

    Args:
        folder: of the run, which need not be there yet.

    Attributes:
        iteration: the last recorded one.
        events: in the order in which they were read.
    """

    def __init__(self, folder: Path) -> None:
        self.iteration = 0
        self.events: list[Noticed] = []
        self._run = RunDirectory(folder)
        self._tail = RunTail(folder)
        self._seen: set[str] = set()
        self._began = 0.0

    def read(self) -> None:
        """Takes in what is new."""
        for news in self._tail.read():
            for record in news.records if news.name == METRICS else ():
                self.iteration = int(record["iteration"])
                if "event" in record:
                    self._take(record)

    def after(self, moment: float, *names: str) -> Iterator[Noticed]:
        """The events of some names from a moment on, in order."""
        for event in self.events:
            if event.name in names and event.time >= moment:
                yield event

    def state(self) -> str:
        """`starting`, `running`, `finished`, `stopped`, `failed`, or empty before the start."""
        with contextlib.suppress(BadInput):
            return str(self._run.read_status().get("state", ""))
        return ""

    def has_ended(self) -> bool:
        """Whether the run's status says that it is over."""
        return self.state() in ENDED

    def _take(self, record: dict[str, Any]) -> None:
        text = json.dumps(record, sort_keys=True)
        if text in self._seen:
            return
        self._seen.add(text)
        if "time" in record:
            self._began = record["time"] - record["seconds"]
        moment = self._began + record.get("seconds", 0.0)
        self.events.append(Noticed(record["event"], moment, int(record["iteration"]), record))
