"""Runs whose rows a test makes up, without a folder."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mdgan.records.recorded_run import RecordedRun, Trace
from mdgan.records.run_directory import Status
from mdgan.records.run_state import RunState


def run_of(
    *rows: dict[str, Any],
    name: str = "run",
    config: Mapping[str, Any] | None = None,
    status: Status | None = None,
    traces: Mapping[str, Trace] | None = None,
) -> RecordedRun:
    """A run with these rows; those that make no sense are left out."""
    state = RunState()
    for row in rows:
        with suppress(ValueError):
            state.take(row)
    events = [row for row in rows if "event" in row]
    return RecordedRun(
        Path("runs") / name, config or {}, status or {}, events, state, traces or {}, {}, ()
    )
