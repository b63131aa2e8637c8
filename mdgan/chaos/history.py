"""Reads what a run's servers record, while the run goes on."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mdgan.errors import BadInput
from mdgan.records.happenings import Happening
from mdgan.records.rows import Swap
from mdgan.records.run_directory import ENDED, RunDirectory
from mdgan.records.run_state import RunState
from mdgan.records.run_tail import METRICS, RunTail


class Noticed(NamedTuple):
    """What happened to workers, and when, in seconds since 1970."""

    time: float
    row: Happening


class History:
    """Everything that was ever recorded, also what a server that took over has cut off again.

    Attributes:
        events: in the order in which they were read.
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[Noticed] = []
        self.swaps: list[Swap] = []
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

    def after(self, moment: float, *kinds: str) -> Iterator[Noticed]:
        """The events of some kinds from a moment on, in order."""
        return (e for e in self.events if e.row.kind in kinds and e.time >= moment)

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
        if text in self._seen:
            return
        self._seen.add(text)
        if isinstance(row, Happening):
            self.events.append(Noticed(self._state.time_of(row), row))
        elif isinstance(row, Swap):
            self.swaps.append(row)
