"""A host that lies about its own work to reports and `watch`."""

import json
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from mdgan.inspect.chrome_trace import write_chrome_trace
from mdgan.messages import Kind, Message
from mdgan.observe import timelines
from mdgan.observe.tracer import MOST_SPANS
from mdgan.records.recorded_run import RecordedRun
from tests.hostile.bench import RANK, Hostile, hostile_run, with_fields
from tests.processes import run_here

Row = dict[str, Any]


def of(*spans: Any, start: Any = None, iteration: Any = 1, **more: Any) -> Callable[[Row], Row]:
    """Makes one row of an honest one."""
    return lambda row: {
        "iteration": iteration,
        "start": row["start"] if start is None else start,
        "spans": list(spans),
        **more,
    }


LIES: dict[str, Callable[[Row], Row]] = {
    "a name that moves terminals": of(["\x1b[2J", 0, 0, 1, 0]),
    "no name": of(["", 0, 0, 1, 0]),
    "many names": of(*([f"{n:x}", 0, 0, 1, 0] for n in range(100))),
    "a huge worker": of(["train", 10**400, 0, 1, 0]),
    "NaN": of(["train", 0, nan, 1, 0]),
    "endless": of(["train", 0, 0, inf, 0]),
    "before all others": of(["train", 0, -(10**15), 1, 0]),
    "half a span": of(["train", 0]),
    "before the world": of(["train", 0, 0, 1, 0], start=-1e9),
    "an iteration that never was": of(["train", 0, 0, 1, 0], iteration=10**9),
}


def told(ran: Any) -> list[Row]:
    lines = (ran.folder / "trace" / f"host-{RANK}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "lie", ["NaN", *(pytest.param(lie, marks=pytest.mark.slow) for lie in LIES if lie != "NaN")]
)
def test_odd_spans_reach_no_record(tmp_path: Path, lie: str) -> None:
    def change(message: Message) -> Message:
        rows = message.fields["rows"]
        return with_fields(message, rows=[*rows, *map(LIES[lie], rows[:1])])

    ran = hostile_run(tmp_path, Hostile(Kind.SPANS, change))
    assert not ran.harm
    assert not RecordedRun.read(ran.folder).damage
    write_chrome_trace(ran.folder, tmp_path / "trace.json")
    if lie != "NaN":  # drawing a report takes long
        assert run_here("report", "run", cwd=tmp_path).status == 0
    assert run_here("watch", "run", "--once", cwd=tmp_path).status == 0


def test_what_one_host_tells_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MOST_BYTES", 50_000)

    def flood(message: Message) -> list[Message]:
        begin = message.fields["rows"][0]["start"]
        row = of(*[["train", RANK, 0, 1, 0]] * (MOST_SPANS // 8), start=begin)({})
        return [with_fields(message, rows=[row])] * 5

    ran = hostile_run(tmp_path, Hostile(Kind.SPANS, flood))
    assert not ran.harm
    assert 50_000 < sum(len(json.dumps(row)) for row in told(ran)) < 125_000
    assert ran.result.errors.count("more are not recorded") == 1
