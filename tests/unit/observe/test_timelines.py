"""Hosts' timelines: what the server records of them, and what costs a host its link."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mdgan import messages
from mdgan.messages import Kind, Message
from mdgan.observe import timelines
from mdgan.observe.timelines import Timelines
from mdgan.observe.tracer import Tracer
from tests.hostile.test_spans import LIES
from tests.unit.engine.alone import join, make_peers
from tests.unit.observe.conftest import Clock
from tests.unit.observe.test_run_observer import make_observer

ROW = {"iteration": 1, "start": 1000.0, "spans": [["wait", 0, 0, 1, 0], ["train", 2, 1, 3, 9]]}


class Told:
    """A server that host 2 with the ranks 2 and 3 tells something."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.path = folder / "run" / "trace" / "host-2.jsonl"
        peers = make_peers(3, observer=make_observer(folder / "run"))
        join(peers, 2, 3)
        self._timelines = Timelines(peers.observer, peers.admission.carried, 20, self.clock)

    def tell(self, *rows: Mapping[str, Any], iteration: int = 1, **more: Any) -> None:
        fields = {"rows": list(rows), "sent_bytes": {}, "received_bytes": {}, **more}
        self._timelines.note_spans(2, Message(Kind.SPANS, iteration, fields))

    def recorded(self) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [row for line in lines if "spans" in (row := json.loads(line))]


@pytest.fixture
def server(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_what_a_host_has_done_is_recorded_as_it_tells_it(server: Told) -> None:
    server.tell(ROW, memory_bytes=5)
    (row,) = server.recorded()
    assert row["iteration"] == 1
    assert row["spans"] == ROW["spans"]


def test_what_a_tracer_gives_is_what_a_host_may_tell(server: Told) -> None:
    tracer = Tracer()
    tracer.clock_offset_seconds = 0.0
    server.clock.now = tracer._taken_at
    with tracer.span("receive"), tracer.of_worker(3)("local step") as span:
        span.num_bytes = 7
    message = messages.spans(0, tracer.take(), {"FEEDBACK": 9}, {"BATCHES": 8}, 10**9)
    server._timelines._began = server.clock.now
    server._timelines.note_spans(2, message)
    assert len(server.recorded()[0]["spans"]) == 2


CUTS = set(LIES) - {"before the world", "before all others", "after the end"}


@pytest.mark.parametrize("lie", sorted(CUTS))
def test_an_odd_row_costs_its_host_the_link_and_is_not_recorded(server: Told, lie: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        server.tell(ROW, LIES[lie](ROW))
    assert not server.recorded()


@pytest.mark.parametrize(
    "fields",
    [
        {"sent_bytes": {"FEEDBACK": -1}},
        {"sent_bytes": {"\x1b[2J": 1}},
        {"received_bytes": {f"K{'A' * n}": 1 for n in range(70)}},
        {"memory_bytes": -1},
        {"memory_bytes": float("nan")},
        {"rows": {}},
        {"rows": None},
        {"fetching": {"batches": -1}},
        {"profile": []},
        {"iteration": 10**9},
        {"iteration": -1},
    ],
)
def test_odd_fields_cost_the_link(server: Told, fields: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.tell(**fields)


def test_rows_of_another_time_are_left_out_and_that_is_said_once(
    server: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    for start in (1000.0 + 3600, 1000.0 - 10 * 86400, 999.0, 1059.0):
        server.tell({**ROW, "start": start})
    assert len(server.recorded()) == 2
    assert capsys.readouterr().err.count("before or after the run") == 1


def test_what_is_recorded_of_a_host_is_bounded_but_grows_with_the_run(
    server: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "MOST_BYTES", 1000)
    for _ in range(100):
        server.tell(ROW)
    before = len(server.recorded())
    assert before < 20
    server.clock.now += 10
    server.tell({**ROW, "start": server.clock.now})
    assert len(server.recorded()) == before + 1
